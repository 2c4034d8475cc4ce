"""Phrases of the old private dialect do not come back; plain ones are in CONTRIBUTING.md."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PATTERNS = {
    r"\bfor want of\b": "because of too little, or out of",
    r"\bwhoever\b": "if you",
    r"\blest\b": "so that … not",
    r"\bthereof\b": "of it",
    r"\bhand's\b": "user's",
    r"\b(is|are|was|were) told\b": "receives",
    r"\b(where|as) there are so many\b": "the number",
    r"\bso many of\b": "the number",
    r"\bgoes on where it\b": "resumes",
    r"\bis no finite number\b": "is not finite",
    r"\bbeside (it|them|the|each)\b": "next to",
    r"\bmend(s|ed|ing)?\b": "fix",
    r"\bof (yours|old|now|today)\b": "your, older, current",
    r"\banybody\b": "anyone",
}
"""What is not written, and what instead."""
SUFFIXES = (".md", ".py", ".toml", ".j2", ".html", ".js", ".yml")


def sources() -> list[Path]:
    folders = (
        "README.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "docs",
        "cato",
        "reproduce",
        "tools",
        "examples",
    )
    listed = subprocess.run(
        ["git", "ls-files", *folders], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    paths = [ROOT / name for name in listed if name.endswith(SUFFIXES)]
    return [path for path in paths if path.exists()]


def findings(text: str) -> list[str]:
    """Phrases in a text that should be plainer."""
    text = " ".join(text.split())
    return [
        f"{match[0]!r} ({instead})"
        for pattern, instead in PATTERNS.items()
        for match in re.finditer(pattern, text, re.IGNORECASE)
    ]


def test_texts_are_in_plain_english() -> None:
    found = {str(p.relative_to(ROOT)): findings(p.read_text()) for p in sources()}
    assert len(found) > 200
    assert {name: phrases for name, phrases in found.items() if phrases} == {}


@pytest.mark.parametrize(
    "text",
    [
        "Whoever changes it",
        "perhaps for want\nof memory",
        "the page beside it",
        "mend F",
        "3 of yours",
    ],
)
def test_a_phrase_would_be_found(text: str) -> None:
    assert findings(text)
