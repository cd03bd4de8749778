import { type ComponentChildren, render } from 'preact';
import { Menu } from './buttons.ts';
import { SiteHeader } from './header.ts';
import { html } from './html.ts';

const SIZES = ['small', 'normal', 'large', 'title', 'figure', 'headline'];
const TONES = ['good', 'bad', 'warn', 'live', 'even'];
const COLORS = ['paper', 'surface', 'sunken', 'line', 'edge', 'ink', 'ink-soft', 'accent', 'accent-wash'];
const CURVES = [1, 2, 3, 4, 5, 6, 7, 8].map(number => `curve-${number}`);
const NOTE = 'What is wrong, where, and what would be right.';

interface PartProps {
  readonly title: string;
  readonly wide?: boolean;
  readonly children?: ComponentChildren;
}

function Part({ title, wide, children }: PartProps) {
  return html`<section class="panel ${wide ? 'wide' : ''}"><div class="panel-head"><h2>${title}</h2></div>${children}</section>`;
}

function Swatch({ name }: { readonly name: string }) {
  return html`<li class="row"><span class="button" style=${{ background: `var(--${name})` }}></span><code>${name}</code></li>`;
}

function Foundations() {
  return html`<${Part} title="Sizes of text" wide>
      ${SIZES.map(name => html`<p class="cut" key=${name} style=${{ fontSize: `var(--${name})`, maxWidth: 'none', lineHeight: 1.2 }}>80 % <code>${name}</code></p>`)}
      <p class="prose">Prose keeps to a measure that reads well, with <a href="#links">a link</a>, <code>code</code> and <kbd>K</kbd>.</p>
      <p class="hint">A hint says what a field is for.</p><p class="fine">Fine print stands next to something.</p>
      <p class="figure">0.0731</p>
    <//>
    <${Part} title="Colors"><ul class="tiles" style="--tile: 8.5rem">${COLORS.map(name => html`<${Swatch} key=${name} name=${name} />`)}</ul><//>
    <${Part} title="Curves"><ul class="tiles" style="--tile: 8.5rem">${CURVES.map(name => html`<${Swatch} key=${name} name=${name} />`)}</ul><//>`;
}

function Controls() {
  return html`<${Part} title="Buttons">
      <div class="row"><button type="button" class="primary">Primary</button><button type="button">Usual</button>
        <button type="button" class="quiet">Quiet</button><button type="button" class="small">Small</button>
        <button type="button" class="link">A link</button><button type="button" disabled>Disabled</button>
        <span class="button">To look at</span></div>
      <div class="row apart"><div class="row tight" role="group" aria-label="Axis"><button type="button" class="small" aria-pressed="true">step</button><button type="button" class="small" aria-pressed="false">time</button></div>
        <span class="push"><${Menu} label="A menu"><label class="check"><input type="checkbox" checked /> One of its choices</label><//></span></div>
      <nav class="tabs" aria-label="Tabs"><a href="#first" aria-current="page">First</a><a href="#second">Second</a></nav>
    <//>
    <${Part} title="Fields">
      <div class="row low"><label class="field grow"><span>Text</span><input placeholder="Name" /></label>
        <label class="field"><span>Choice</span><select><option>one</option><option>two</option></select></label></div>
      <span class="pair"><label for="seed">Seed</label><input id="seed" type="number" value="7" /></span>
      <label class="check"><input type="checkbox" checked /> A check box</label>
      <label class="field"><span>Code</span><textarea class="code" aria-invalid="true">{</textarea></label>
      <p class="fine outcome field-error">Definition is not JSON: it ends after the first character.</p>
    <//>`;
}

function Verdicts() {
  return html`<${Part} title="Chips and tags">
      <p class="row">${TONES.map(tone => html`<span key=${tone} class="chip ${tone}" data-sign="●">${tone}</span>`)}<span class="chip">no tone</span><span class="chip">a tag</span></p>
      <p class="row"><span class="outcome good">✓ Reached the goal</span> <span class="outcome">✕ Fell into a hole</span></p>
      ${[0.2, 0.8].map(share => html`<span key=${share} class="row"><span class="fine">value</span><span class="meter ${share < 0.5 ? 'down' : ''}" style=${{ '--from': share < 0.5 ? 0.4 : 0, '--share': share < 0.5 ? share / 2 : share }}></span></span>`)}
    <//>
    <${Part} title="Notes">${TONES.map(
      tone =>
        html`<div key=${tone} class="note ${tone}"><p class="title">A note: ${tone}</p><p>${NOTE}</p><ul><li>One thing</li></ul><p class="fine">fine print</p></div>`,
    )}<//>
    <div class="bar wide warn">A line across the page: the server does not answer.</div>`;
}

function Contents() {
  return html`<${Part} title="Cards"><ul class="tiles" style="--tile: 13rem">${['A card', 'A chosen one'].map(
    (title, index) =>
      html`<li key=${title}><article class="card" aria-current=${index === 1 ? 'true' : undefined}><h3><a class="whole" href="#card">${title}</a></h3><p>Turn 3 of 100</p></article></li>`,
  )}</ul>
      <div class="strip" style="--tile: 20rem" tabindex="0" role="region" aria-label="A strip">${[1, 2, 3].map(turn => html`<div key=${turn} class="card">Turn ${turn}</div>`)}</div><//>
    <${Part} title="Numbers">
      <dl class="figures"><div><dt>return</dt><dd class="figure">0.8 <small>of 1</small></dd></div><div><dt>steps</dt><dd class="figure">30</dd></div></dl>
      <dl class="facts" style="--tile: 8.5rem"><div><dt>seed</dt><dd>7</dd></div><div><dt>turns</dt><dd>3</dd></div></dl><//>
    <${Part} title="A table" wide><div class="scroll scroll-x" tabindex="0" role="region" aria-label="A table"><table>
      <thead><tr><th scope="col">Run</th><th scope="col" class="number">Success</th></tr></thead>
      <tbody><tr><th scope="row">lake-1</th><td class="number"><b class="large">80 %</b></td></tr><tr><th scope="row">lake-2</th><td class="number">61 %</td></tr></tbody></table></div><//>
    <${Part} title="Code" wide><div class="command"><pre class="cut" tabindex="0">npm run trainer -- train configs/quickstart.yaml</pre><button type="button" class="quiet small">Copy</button></div>
      <pre tabindex="0">def step(action):\n    return observation, reward</pre><div class="code-box" tabindex="0" role="region" aria-label="Text">the same box for marked text</div><//>
    <div class="stack tiles wide" style="--tile: 25rem"><div class="stack tight"><p>close</p><p>together</p></div><div class="stack" style="--tile: 30rem"><p>further</p><p>apart</p></div></div>`;
}

render(
  html`<a class="button primary visually-hidden skip" href="#main">Skip to the content</a>
    <${SiteHeader} server="../" />
    <main id="main" class="stack"><h1>Components</h1>
      <div class="tiles" style="--tile: 25rem"><${Foundations} /><${Controls} /><${Verdicts} /><${Contents} /></div></main>
    <footer class="page-foot fine">The footer of a page.</footer>`,
  document.body,
);
