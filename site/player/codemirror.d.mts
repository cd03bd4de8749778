/** The parts of CodeMirror that the page loads: `npm run editor` bundles them into codemirror.mjs. */
export { defaultKeymap, history, historyKeymap, indentWithTab } from '@codemirror/commands';
export { pythonLanguage } from '@codemirror/lang-python';
export {
  bracketMatching,
  HighlightStyle,
  indentOnInput,
  indentUnit,
  syntaxHighlighting,
} from '@codemirror/language';
export { EditorState } from '@codemirror/state';
export { drawSelection, EditorView, keymap, lineNumbers } from '@codemirror/view';
export { tags } from '@lezer/highlight';
