import { render } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { SiteHeader } from '../components/header.ts';
import { html } from '../components/html.ts';
import { setToken as keepToken, token as keptToken } from '../components/request.ts';
import { listen } from '../components/store.ts';
import { OperationView } from './operation-view.ts';
import type { OpenApi, Operation } from './schema-view.ts';
import { Text } from './schema-view.ts';

/** Every operation with its path, in document order. */
const operationsOf = ({ paths }: OpenApi) =>
  Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ path, method, operation })),
  );

/** The operation in the address: `#/sessions/create`. */
const addressed = () => location.hash.slice(location.hash.lastIndexOf('/') + 1);

const isFound = (
  words: readonly string[],
  path: string,
  { operationId, summary, description }: Operation,
) => {
  const text = `${path} ${operationId} ${summary} ${description ?? ''}`.toLowerCase();
  return words.every(word => text.includes(word));
};

function Reference({ document }: { readonly document: OpenApi }) {
  const [query, search] = useState('');
  const [token, setToken] = useState(keptToken);
  const [names, setNames] = useState<{ readonly [name: string]: string }>({});
  const [opened, setOpened] = useState<ReadonlySet<string>>(new Set([addressed()]));
  useEffect(() => {
    const follow = () => {
      setOpened(before => new Set([...before, addressed()]));
      globalThis.document.getElementById(addressed())?.scrollIntoView();
    };
    follow();
    return listen({ hashchange: follow });
  }, []);
  const toggle = (tag: string, id: string, isOpen: boolean) => {
    if (isOpen === opened.has(id)) return;
    setOpened(before => new Set(isOpen ? [...before, id] : [...before].filter(other => other !== id)));
    history.replaceState(null, '', isOpen ? `#/${tag}/${id}` : '#');
  };
  const useToken = (text: string) => {
    setToken(text);
    keepToken(text);
  };
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  const found = operationsOf(document).filter(({ path, operation }) => isFound(words, path, operation));
  const { title, version, description } = document.info;
  return html`<div class="row"><h1>${title}</h1><span class="chip">${version}</span><a class="push" href="../openapi.json">OpenAPI document</a></div>
    <${Text} text=${description} />
    <div class="row low"><label class="field grow"><span>Search operations</span><input type="search" value=${query} onInput=${(event: Event) => search((event.currentTarget as HTMLInputElement).value)} /></label>
      <label class="field"><span>Token, kept in this tab</span><input type="password" autocomplete="off" value=${token} onInput=${(event: Event) => useToken((event.currentTarget as HTMLInputElement).value.trim())} /></label></div>
    ${document.tags.map(({ name, description }) => {
      const members = found.filter(({ operation }) => operation.tags.includes(name));
      return (
        members.length > 0 &&
        html`<section key=${name} class="stack tight"><h2>${name}</h2><p class="fine">${description}</p>
          ${members.map(
            ({ path, method, operation }) =>
              html`<${OperationView} key=${operation.operationId} document=${document} path=${path} method=${method} operation=${operation} token=${token}
                names=${names} onName=${(of: string, value: string) => setNames(before => ({ ...before, [of]: value }))}
                isOpen=${opened.has(operation.operationId)} onToggle=${(isOpen: boolean) => toggle(name, operation.operationId, isOpen)} />`,
          )}</section>`
      );
    })}
    ${found.length === 0 && html`<p>No operation has all of these words.</p>`}`;
}

const { runs } = document.documentElement.dataset;
const show = (content: unknown) =>
  render(
    html`<a class="button primary visually-hidden skip" href="#main">Skip to the content</a>
      <${SiteHeader} current="Docs" server="../" runs=${runs && `../${runs}`} />
      <main id="main" class="stack" tabindex="-1">${content}</main>`,
    document.body,
  );

async function load(): Promise<void> {
  show(html`<h1>Reference</h1>`);
  try {
    const response = await fetch('../openapi.json');
    if (!response.ok) throw new Error(`status ${response.status}`);
    show(html`<${Reference} document=${await response.json()} />`);
  } catch (error) {
    const reason = `The OpenAPI document did not come: ${(error as Error).message}. Load the page again.`;
    show(html`<h1>Reference</h1><p class="note bad">${reason}</p>`);
  }
}

void load();
