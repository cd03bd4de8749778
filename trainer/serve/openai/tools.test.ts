import t from 'tap';
import { ToolCallReader, type ToolText } from './choice.ts';

function read(pieces: readonly string[]): { content: string; calls: string[]; shown: string[] } {
  const reader = new ToolCallReader();
  const all: ToolText[] = pieces.map(piece => reader.push(piece));
  const shown = all.map(({ content }) => content);
  all.push(reader.finish());
  return {
    content: all.map(({ content }) => content).join(''),
    calls: all.flatMap(({ calls }) => calls.map(call => `${call.function.name}(${call.function.arguments})`)),
    shown,
  };
}

const QWEN =
  'Let me see.\n<tool_call>\n{"name": "move", "arguments": {"to": "Up"}}\n</tool_call>\n<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call>';

t.test("tool calls in Qwen's form are read, whole and a character at a time", async t => {
  for (const pieces of [[QWEN], [...QWEN]]) {
    const { content, calls } = read(pieces);
    t.same(calls, ['move({"to":"Up"})', 'look({})']);
    t.equal(content, 'Let me see.\n\n');
  }
});

t.test('text before a call is streamed as it arrives', async t => {
  t.same(read(['one ', 'two <tool', '_call>{']).shown, ['one ', 'two ', '']);
});

t.test('text that only looks like the beginning of a call is content', async t => {
  t.equal(read(['a <tool', '_box> b']).content, 'a <tool_box> b');
});

t.test('a call that is not JSON stays content', async t => {
  const { content, calls } = read(['<tool_call>{"name": move}</tool_call> done']);
  t.same(calls, []);
  t.equal(content, '<tool_call>{"name": move}</tool_call> done');
});

t.test('a call at the end of a response counts if it is complete', async t => {
  t.same(read(['<tool_call>{"name":"a","arguments":{"x":1}}']).calls, ['a({"x":1})']);
  t.equal(read(['<tool_call>{"name":"a"']).content, '<tool_call>{"name":"a"');
});

t.test("tool calls in Llama 3's form are read", async t => {
  t.same(read(['{"name": "move", ', '"parameters": {"to": "Up"}}']).calls, ['move({"to":"Up"})']);
  t.same(read(['<|python_tag|>{"name": "a", "parameters": {}}; {"name": "b", "parameters": {}}']).calls, [
    'a({})',
    'b({})',
  ]);
});

t.test('JSON that is not a call is content', async t => {
  const { content, calls } = read(['{"answer": 42}']);
  t.same(calls, []);
  t.equal(content, '{"answer": 42}');
});
