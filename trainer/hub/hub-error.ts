/** A hub refuses, cannot be reached, or gives something that cannot be used; the message says what to do. */
export class HubError extends Error {
  override readonly name = 'HubError';
  /** HTTP status of the answer; undefined where there was none. */
  readonly status: number | undefined;

  constructor(message: string, options: ErrorOptions & { readonly status?: number } = {}) {
    super(message, options);
    this.status = options.status;
  }
}

/** The reason for a hub's refusal of a model, and what to do about it. */
export function refusal(
  what: string,
  endpoint: string,
  answer: { readonly status: number; readonly code?: string; readonly text?: string },
  hasToken: boolean,
): HubError {
  const { status, code, text } = answer;
  const said = text ? ` (${text.slice(0, 300)})` : '';
  const login = hasToken
    ? 'the token in use (HF_TOKEN, or the file that `hf auth login` writes) has no access'
    : 'set HF_TOKEN to a token with access, or run `hf auth login`';
  if (code === 'GatedRepo') {
    return new HubError(
      `${what} is gated: accept its terms at ${endpoint}/${(what.split(' of ').at(-1) ?? what).split('@')[0]} with your account; ${login}${said}`,
      { status },
    );
  }
  if (status === 401 || status === 403) {
    return new HubError(
      `${endpoint} refuses ${what} with ${status}: it does not exist, or is private; ${login}${said}`,
      {
        status,
      },
    );
  }
  if (status === 404) {
    const missing = code === 'RevisionNotFound' ? 'has no such revision of' : 'has no';
    return new HubError(`${endpoint} ${missing} ${what}: check the spelling${said}`, { status });
  }
  return new HubError(`${endpoint} answers ${status} for ${what}${said}`, { status });
}
