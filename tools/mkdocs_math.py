"""Hook of mkdocs: typeset formulas as MathML when the site is built; needs no script or network.

A fenced block of language `math` is LaTeX. A fenced block without a language, or an indented one,
that looks like a formula is written in Unicode, as in the docstrings of models
(`h ← h + Σ_j w_j v_j`); it is converted to LaTeX first. Symbols in the text get their index
(`C_chart`) and power (`h^1.95`).
"""

import re
import unicodedata
from typing import Any

from latex2mathml.converter import convert

FENCE = re.compile(r"^```(\w*)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?:(?<=\n\n)|\A)(?:    \S.*\n|    .*\S.*\n)(?:(?:    .*)?\n)*(?=\S|\Z)")
VERBATIM = re.compile(r"(`[^`]*`|\]\([^)]*\)|<[^>]*>|^    .*$)", re.MULTILINE)
SYMBOL = re.compile(
    r"(?<![\w/.^])([A-ZΑ-Ωα-ω]\u0303?(?=_\w)|[a-z](?=_(?:[\wα-ω]|ij)(?!\w))|[A-Za-z)](?=\^))"
    r"(_[\w\u0303]+)?(\^[−-]?[\w.]*\w)?"
)
"""A letter with an index, a power or both; a small letter has an index of one, or ij."""
SIGNS = re.compile(r"[←∇∂∫Σ↦ᵀσφψ∀∈‖]|[⁻¹²³₀-₉]")
ACCENTS = {"\u0302": r"\hat", "\u0303": r"\tilde", "\u0304": r"\bar", "\u0307": r"\dot"}
RAISED = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺ᵀⁿᵖᵏˢ", "0123456789-+Tnpks", strict=True))
LOWERED = dict(zip("₀₁₂₃₄₅₆₇₈₉₊₋ᵢⱼₖₙₓₜ", "0123456789+-ijknxt", strict=True))
SYMBOLS = {
    "←": r"\leftarrow ",
    "→": r"\rightarrow ",
    "↦": r"\mapsto ",
    "∇": r"\nabla ",
    "∂": r"\partial ",
    "∫": r"\int ",
    "Σ": r"\sum ",
    "·": r"\cdot ",
    "×": r"\times ",
    "−": "-",
    "…": r"\dots ",
    "⟨": r"\langle ",
    "⟩": r"\rangle ",
    "‖": r"\| ",
    "≤": r"\le ",
    "≥": r"\ge ",
    "≈": r"\approx ",
    "∈": r"\in ",
    "½": r"\frac{1}{2}",
    "%": r"\%",
    "#": r"\#",
    "&": r"\&",
    "{": r"\{",
    "}": r"\}",
    "⊗": r"\otimes ",
    "⊙": r"\odot ",
}
TOKEN = re.compile(
    r"(?P<space>\s+)"
    r"|(?P<text>[A-Za-z][A-Za-z’-]+(?: (?:a |[A-Za-z’-]{2,})+)*)(?![\w])"
    r"|(?P<number>\d+(?:\.\d+)?(?:e[-−]?\d+)?)"
    r"|(?P<root>√(?:\([^()]*\)|.))"
    r"|(?P<index>[_^](?:\([^()]*\)|[A-Za-z0-9]+|.))"
    r"|(?P<accent>\w[\u0302-\u0307])"
    rf"|(?P<raised>[{''.join(RAISED)}]+)"
    rf"|(?P<lowered>[{''.join(LOWERED)}]+)"
    r"|(?P<other>.)"
)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by mkdocs for every page."""
    parts, end = [], 0
    for match in FENCE.finditer(markdown):
        parts += [prose(markdown[end : match.start()]), fenced(match)]
        end = match.end()
    return "".join([*parts, prose(markdown[end:])])


def prose(text: str) -> str:
    """Text between fenced blocks."""
    return indented_formulas(with_symbols(text))


def with_symbols(text: str) -> str:
    """Text whose symbols have raised and lowered parts; code, links and tags are left alone."""
    parts = VERBATIM.split(text)
    return "".join(p if k % 2 else SYMBOL.sub(_with_indices, p) for k, p in enumerate(parts))


def _with_indices(match: re.Match[str]) -> str:
    letter, index, power = match.groups(default="")
    lowered = f"<sub>{index[1:]}</sub>" if index else ""
    return letter + lowered + (f"<sup>{power[1:]}</sup>" if power else "")


def fenced(match: re.Match[str]) -> str:
    """A fenced block, typeset if it is a formula."""
    language, body = match[1], match[2]
    if language == "math":
        return block([body.strip()])
    if not language and SIGNS.search(body):
        return block([latex(line) for line in body.splitlines() if line.strip()])
    return match[0]


def indented_formulas(text: str) -> str:
    """Text in which indented formulas are typeset; other indented blocks are left alone."""

    def replace(match: re.Match[str]) -> str:
        lines = [line for line in match[0].splitlines() if line.strip()]
        if not any(sign in match[0] for sign in "=←") or match[0].lstrip().startswith(("- ", "!")):
            return match[0]
        return block([latex(line) for line in lines]) + "\n"

    return INDENTED.sub(replace, text)


def block(lines: list[str]) -> str:
    """Lines of LaTeX as MathML; a line may be broken where it has a wide gap."""
    rows = []
    for line in lines:
        parts = [part for part in re.split(r"\\q?quad ", line) if part.strip()]
        math = "".join(
            convert(part).replace('"inline"', '"inline" displaystyle="true"', 1) for part in parts
        )
        rows.append(f"<div>{math}</div>")
    return f'\n<div class="formula">{"".join(rows)}</div>\n'


def latex(formula: str) -> str:
    """A formula in Unicode as LaTeX."""
    formula = unicodedata.normalize("NFC", formula.strip())
    formula = re.sub(r"[ûũ]", lambda m: unicodedata.normalize("NFD", m[0]), formula)
    tokens = list(TOKEN.finditer(formula))
    written = []
    for number, token in enumerate(tokens):
        kind, text = str(token.lastgroup), token[0]
        after = formula[token.end() : token.end() + 1]
        if kind == "space":
            written.append(" " if len(text) < 2 else r"\quad " if len(text) < 4 else r"\qquad ")
        elif kind == "text":
            is_function = after in tuple("([" + "".join(RAISED)) and " " not in text
            before = " " if number and tokens[number - 1].lastgroup == "space" else ""
            behind = " " if after == " " else ""
            written.append(
                rf"\mathrm{{{text}}}" if is_function else rf"\text{{{before}{text}{behind}}}"
            )
        elif kind == "number":
            digits, _, exponent = text.replace("−", "-").partition("e")
            factor = "" if digits == "1" and exponent else digits
            times = r"\cdot " if factor and exponent else ""
            written.append(f"{factor}{times}10^{{{exponent}}}" if exponent else digits)
        elif kind == "root":
            written.append(rf"\sqrt{{{subscript(text[1:])}}}")
        elif kind == "index":
            written.append(f"{text[0]}{{{subscript(text[1:])}}}")
        elif kind == "accent":
            written.append(f"{ACCENTS.get(text[1], '')}{{{text[0]}}}")
        elif kind in ("raised", "lowered"):
            table, sign = (RAISED, "^") if kind == "raised" else (LOWERED, "_")
            written.append(f"{sign}{{{''.join(table[one] for one in text)}}}")
        else:
            written.append(SYMBOLS.get(text, text))
    return "".join(written)


def subscript(text: str) -> str:
    """What follows an underscore or a caret: an index, a word, or an expression in parentheses."""
    inner = text[1:-1] if text.startswith("(") else text
    is_word = len(inner) > 2 and inner.isalpha()
    return rf"\mathrm{{{inner}}}" if is_word else "".join(SYMBOLS.get(c, c) for c in inner)
