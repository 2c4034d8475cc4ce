// The token of the service: from the address (#token=…) or asked for, kept until the tab is closed.

const KEY = "token";

/** Take the token out of the address, so that it is in no history and no bookmark. */
function takeFromAddress() {
  const parts = new URLSearchParams(location.hash.slice(1));
  if (!parts.get(KEY)) return;
  sessionStorage.setItem(KEY, parts.get(KEY));
  const [rest] = [...parts.keys()].filter((name) => name !== KEY);
  history.replaceState(null, "", location.pathname + (rest ? `#${rest}` : ""));
}

/** Headers of a request. */
function authorization() {
  const token = sessionStorage.getItem(KEY);
  return token ? { authorization: `Bearer ${token}` } : {};
}

let asked = null;

/** Ask for the token in a dialog; false if the visitor closes it. One dialog for all requests. */
function ask(isWrong) {
  asked ??= new Promise((resolve) => {
    const dialog = document.createElement("dialog");
    const form = document.createElement("form");
    const label = document.createElement("label");
    const input = document.createElement("input");
    const button = document.createElement("button");
    dialog.className = "token";
    label.textContent = isWrong ? "This is not the token of this service." : "This service needs a token.";
    Object.assign(input, { type: "password", autocomplete: "off", required: true });
    button.textContent = "Continue";
    label.append(input);
    form.append(label, button);
    dialog.append(form);
    document.body.append(dialog);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      sessionStorage.setItem(KEY, input.value.trim());
      dialog.close("given");
    });
    dialog.addEventListener("close", () => {
      dialog.remove();
      asked = null;
      resolve(dialog.returnValue === "given");
    });
    dialog.addEventListener("keydown", (event) => event.stopPropagation()); // no shortcuts
    dialog.showModal();
  });
  return asked;
}

/** `fetch` with the token, asking for it if the service does. */
export async function fetchWithToken(url, options = {}) {
  for (;;) {
    const sent = authorization();
    const response = await fetch(url, { ...options, headers: { ...options.headers, ...sent } });
    if (response.status !== 401) return response;
    const isOutdated = sent.authorization !== authorization().authorization;
    if (!isOutdated && !(await ask("authorization" in sent))) return response;
  }
}

takeFromAddress();
