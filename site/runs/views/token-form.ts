import { html } from '../../components/html.ts';
import { RequestFailed } from '../../components/request.ts';
import { useSource } from '../data/hooks.ts';

const UNAUTHORIZED = 401;

/** True for a request that needs a token, or another one. */
export const isLocked = (error: unknown): boolean =>
  error instanceof RequestFailed && error.problem.status === UNAUTHORIZED;

/** Takes the token that a server wants. */
export function TokenForm({ onToken }: { readonly onToken: () => void }) {
  const source = useSource();
  const unlock = (event: SubmitEvent) => {
    event.preventDefault();
    source.setToken(String(new FormData(event.currentTarget as HTMLFormElement).get('token')));
    onToken();
  };
  return html`<form class="row low controls" onSubmit=${unlock}><label class="field grow"><span>Token</span><input type="password" name="token" autocomplete="off" required /></label><button type="submit">Use it</button></form>`;
}
