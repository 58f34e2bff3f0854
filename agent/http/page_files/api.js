// Requests JSON from the agent, with the reader token of this tab.

const TIMEOUT_MS = 10000;

// The agent did not answer.
export class SilentError extends Error {}

// The agent requires a reader token.
export class TokenError extends Error {}

export function setToken(token) { sessionStorage.setItem("token", token); }

export async function getJson(path) {
  const token = sessionStorage.getItem("token");
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  let response, body;
  try {
    response = await fetch(path, { headers, cache: "no-store", signal: AbortSignal.timeout(TIMEOUT_MS) });
    body = await response.json();
  } catch (error) {
    throw response && !(error instanceof DOMException) ? new Error("The answer is not that of an Oncegate agent.") : new SilentError("The agent does not respond.");
  }
  if (response.status === 401 || response.status === 403) throw new TokenError("A reader token is required.");
  if (!response.ok) throw new Error(body.message);
  return body;
}
