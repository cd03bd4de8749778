import { textTool } from '../core/action-tool.ts';
import type { ActionTool } from '../core/environment.ts';

export const TOOLS: readonly ActionTool[] = [
  textTool(
    'search',
    'Shows the documents that fit best.',
    { query: 'One fact to look for' },
    ({ query }) => `search[${query}]`,
  ),
  textTool(
    'answer',
    'Answers the question, which ends the episode.',
    { answer: 'A short answer' },
    ({ answer }) => `finish[${answer}]`,
  ),
];
