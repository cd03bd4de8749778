import { useState } from 'preact/hooks';
import { html } from '../components/html.ts';
import { alternatives, type OpenApi, resolved, type Schema, typeName } from './document.ts';

/** Text with `code`, and an empty line between paragraphs. */
export function Text({ text }: { readonly text: string }) {
  return text
    .split('\n\n')
    .map(
      paragraph =>
        html`<p class="prose">${paragraph.split('`').map((part, index) => (index % 2 === 1 ? html`<code>${part}</code>` : part))}</p>`,
    );
}

interface SchemaViewProps {
  readonly schema: Schema;
  readonly document: OpenApi;
}

/** True if a schema has more to show than its type. */
function hasParts(schema: Schema, document: OpenApi): boolean {
  const { properties, items, ...rest } = resolved(schema, document);
  return (
    Object.keys(properties ?? {}).length > 0 ||
    [...(items ? [items] : []), ...alternatives(rest)].some(
      part => part.$ref !== undefined || hasParts(part, document),
    )
  );
}

/** The members of an object, or the alternatives of a schema; each opens on demand, because schemas refer to one another. */
export function SchemaView({ schema, document }: SchemaViewProps) {
  const whole = resolved(schema, document);
  const parts = [...alternatives(whole), ...(whole.items ? [whole.items] : [])];
  return html`${
    whole.properties &&
    html`<table class="members"><tbody>${Object.entries(whole.properties).map(
      ([name, member]) => html`<tr key=${name}>
      <th scope="row"><code>${name}</code>${whole.required?.includes(name) && html` <span class="fine">required</span>`}</th>
      <td><${Member} schema=${member} document=${document} /></td></tr>`,
    )}</tbody></table>`
  }
    ${parts.map((part, index) => html`<${Member} key=${index} schema=${part} document=${document} />`)}`;
}

function Member({ schema, document }: SchemaViewProps) {
  const [isOpen, open] = useState(false);
  const { description, default: usual } = { ...resolved(schema, document), ...schema };
  const type = html`<code>${typeName(schema)}</code>`;
  return html`${
    hasParts(schema, document)
      ? html`<details onToggle=${(event: Event) => open((event.currentTarget as HTMLDetailsElement).open)}>
          <summary>${type}</summary>${isOpen && html`<${SchemaView} schema=${schema} document=${document} />`}</details>`
      : type
  }${usual !== undefined && html` <span class="fine">default <code>${JSON.stringify(usual)}</code></span>`}
    ${description && html`<${Text} text=${description} />`}`;
}
