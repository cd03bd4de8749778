import { useEffect, useRef, useState } from 'preact/hooks';
import { attempted } from '../../shared/json.ts';
import { html } from '../components/html.ts';
import type * as CodeMirror from './codemirror.d.mts';

interface CodeEditorProps {
  readonly label: string;
  /** Initial text. */
  readonly start: string;
  readonly onText: (text: string) => void;
  /** Called on Ctrl+Enter. */
  readonly send: () => void;
  /** Called where the editor cannot be loaded. */
  readonly onfail: () => void;
}

/**
 * An editor for Python, loaded when first shown. It is in a shadow tree, because CodeMirror's style elements would break the
 * page's policy, and its adopted sheets do not.
 */
export function CodeEditor(props: CodeEditorProps) {
  const place = useRef<HTMLDivElement>(null);
  const [view, setView] = useState<CodeMirror.EditorView | undefined>(undefined);
  const latest = useRef(props);
  latest.current = props;
  useEffect(() => {
    let opened: CodeMirror.EditorView | undefined;
    let isShown = true;
    import('./codemirror.mjs').then(codeMirror => {
      if (!isShown) return;
      const hadFocus = document.activeElement === place.current;
      opened = openEditor(codeMirror, place.current!, {
        label: props.label,
        start: props.start,
        onText: text => latest.current.onText(text),
        send: () => latest.current.send(),
      });
      setView(opened);
      if (hadFocus) opened.focus();
    }, props.onfail);
    return () => {
      isShown = false;
      opened?.destroy();
    };
  }, []);
  const focus = () => {
    if (view && !view.hasFocus) view.focus();
  };
  return html`<div ref=${place} class="code-editor" data-action-field data-own-keys tabindex="-1" onFocus=${focus}>
    <p class="hint">Loading the editor …</p>
  </div>`;
}

function openEditor(
  { EditorState, EditorView, HighlightStyle, tags, ...parts }: typeof CodeMirror,
  place: HTMLElement,
  { label, start, onText, send }: Omit<CodeEditorProps, 'onfail'>,
): CodeMirror.EditorView {
  const root = place.shadowRoot ?? place.attachShadow({ mode: 'open' });
  // Colors from the page's tokens, so that both themes apply.
  const { function: functionOf, definition, special, variableName } = tags;
  const names = [functionOf(variableName), functionOf(definition(variableName)), tags.className];
  const colors = [
    {
      tag: [tags.keyword, tags.operatorKeyword, tags.controlKeyword, tags.definitionKeyword],
      color: 'var(--curve-5)',
    },
    { tag: [tags.string, special(tags.string)], color: 'var(--curve-3)' },
    { tag: [tags.number, tags.bool, tags.null], color: 'var(--curve-2)' },
    { tag: tags.comment, color: 'var(--ink-soft)' },
    { tag: names, color: 'var(--curve-1)' },
  ];
  const submit = () => {
    send();
    return true;
  };
  return new EditorView({
    root,
    parent: root,
    state: EditorState.create({
      doc: start,
      selection: { anchor: start.length },
      extensions: [
        parts.lineNumbers(),
        parts.history(),
        parts.drawSelection(),
        parts.indentOnInput(),
        parts.indentUnit.of('    '),
        parts.bracketMatching(),
        parts.pythonLanguage,
        parts.syntaxHighlighting(HighlightStyle.define(colors)),
        // Escape and then Tab leaves the editor.
        parts.keymap.of([
          { key: 'Mod-Enter', run: submit },
          ...parts.defaultKeymap,
          ...parts.historyKeymap,
          parts.indentWithTab,
        ]),
        EditorView.lineWrapping,
        EditorView.contentAttributes.of({ 'aria-label': label, autocapitalize: 'off', spellcheck: 'false' }),
        EditorView.updateListener.of(({ docChanged, state }) => {
          if (docChanged) onText(state.doc.toString());
        }),
        EditorView.theme({
          '&': {
            background: 'var(--surface)',
            color: 'var(--ink)',
            height: '100%',
            border: '1px solid var(--edge)',
            fontSize: 'var(--small)',
          },
          '.cm-scroller': { fontFamily: 'var(--mono)', overflow: 'auto' },
          '.cm-gutters': { background: 'var(--sunken)', color: 'var(--ink-soft)', border: 'none' },
          '.cm-cursor': { borderLeftColor: 'var(--ink)' },
          '&.cm-focused': { outline: '2px solid var(--focus)', outlineOffset: '-2px' },
          '&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground':
            {
              background: 'var(--accent-wash)',
            },
          '&.cm-focused .cm-matchingBracket': { background: 'var(--accent-wash)' },
        }),
      ],
    }),
  });
}

/** A task that is answered by a program. */
export interface ProgramTask {
  readonly statement: string;
  /** Starter code; empty where there is none. */
  readonly starter: string;
}

/** The editor's initial program: the signature, and a line for the body. */
export function startOf({ starter }: ProgramTask): string {
  const text = starter.trimEnd();
  if (!text.endsWith(':')) return starter;
  const last = text.slice(text.lastIndexOf('\n') + 1);
  const indent = last.length - last.trimStart().length;
  return `${text}\n${' '.repeat(indent + 4)}`;
}

/** Most stored programs, so that a reload does not lose them. */
const MAX_KEPT = 20;
const KEY = 'ragen-programs';

/** Length of the statement's beginning that identifies its task. */
const MAX_NAME_LENGTH = 500;

interface KeptProgram {
  /** The beginning of a task's statement. */
  readonly task: string;
  readonly text: string;
}

function keptPrograms(): readonly KeptProgram[] {
  const kept = attempted((): unknown => JSON.parse(localStorage.getItem(KEY) ?? '[]'));
  return Array.isArray(kept) ? kept.filter(each => typeof each?.text === 'string') : [];
}

const nameOf = ({ statement }: ProgramTask): string =>
  `${statement.length} ${statement.slice(0, MAX_NAME_LENGTH)}`;

/** The stored program for a task; undefined where there is none. */
export const keptProgram = (task: ProgramTask): string | undefined =>
  keptPrograms().find(each => each.task === nameOf(task))?.text;

/** Stores a program in the browser; the oldest is dropped. */
export function keepProgram(task: ProgramTask, text: string): void {
  const name = nameOf(task);
  const others = keptPrograms().filter(each => each.task !== name);
  // A browser that stores nothing for this page keeps the program until the page is left.
  attempted(() =>
    localStorage.setItem(KEY, JSON.stringify([{ task: name, text }, ...others].slice(0, MAX_KEPT))),
  );
}
