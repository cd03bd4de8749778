import { html } from '../../components/html.ts';
import { useSource } from '../data/hooks.ts';

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
