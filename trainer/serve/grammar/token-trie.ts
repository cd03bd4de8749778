import type { Sliced } from '../../../shared/slices.ts';
import type { TokenTrie } from '../../generation/text-grammar.ts';
import type { Tokenizer } from '../../models/tokenizer/tokenizer.ts';

/** Tokens read between two places where others may have their turn. */
const TOKENS_AT_ONCE = 256;

interface TokenText {
  readonly id: number;
  readonly text: string;
}

/** The texts of all tokens that are whole characters; special tokens have none. */
export function* tokenTrie(tokenizer: Tokenizer, vocabularySize: number): Sliced<TokenTrie> {
  /** By their first two characters, so that no sort takes long. */
  const parts = new Map<string, TokenText[]>();
  let length = 1;
  let count = 0;
  for (const token of yield* tokenTexts(tokenizer, vocabularySize)) {
    const key = token.text.slice(0, 2);
    const part = parts.get(key);
    if (part === undefined) parts.set(key, [token]);
    else part.push(token);
    length += token.text.length;
    count++;
  }
  yield;
  const [characters, depths] = [new Uint16Array(length), new Uint16Array(length)];
  const [parents, ends, firstTokens] = [0, 1, 2].map(() => new Int32Array(length + 1));
  const nodes = sharedInts(vocabularySize);
  const tokens = sharedInts(count);
  /** Nodes on the way to the last text, the root first. */
  let path = [0];
  let before = '';
  let node = 0;
  let written = 0;
  for (const key of [...parts.keys()].sort()) {
    for (const { id, text } of parts.get(key)!.sort(byText)) {
      let common = 0;
      while (common < before.length && text.charCodeAt(common) === before.charCodeAt(common)) common++;
      for (const ended of path.slice(common + 1)) ends[ended] = node + 1;
      path = path.slice(0, common + 1);
      for (let at = common; at < text.length; at++) {
        node++;
        characters[node] = text.charCodeAt(at);
        depths[node] = at + 1;
        parents[node] = path[at];
        firstTokens[node] = written;
        path.push(node);
      }
      nodes[id] = node;
      tokens[written++] = id;
      before = text;
    }
    yield;
  }
  for (const ended of path) ends[ended] = node + 1;
  firstTokens[node + 1] = written;
  return {
    characters: shared(Uint16Array, characters.subarray(0, node + 1)),
    depths: shared(Uint16Array, depths.subarray(0, node + 1)),
    parents: shared(Int32Array, parents.subarray(0, node + 1)),
    ends: shared(Int32Array, ends.subarray(0, node + 1)),
    firstTokens: shared(Int32Array, firstTokens.subarray(0, node + 2)),
    tokens,
    nodes,
  };
}

function* tokenTexts(tokenizer: Tokenizer, vocabularySize: number): Sliced<TokenText[]> {
  const texts: TokenText[] = [];
  // Some decoders take a space from the first token: another token comes first here.
  const [front] = tokenizer.encode('"');
  const before = front === undefined ? '' : tokenizer.decode([front], { skipSpecial: true });
  for (let id = 0; id < Math.min(vocabularySize, tokenizer.vocabularySize); id++) {
    if (id % TOKENS_AT_ONCE === 0) yield;
    const whole = tokenizer.decode(front === undefined ? [id] : [front, id], { skipSpecial: true });
    const text = whole.slice(before.length);
    if (text !== '' && !text.includes('\uFFFD')) texts.push({ id, text });
  }
  return texts;
}

/** By code units, the order of the trie's nodes. */
function byText(a: TokenText, b: TokenText): number {
  if (a.text === b.text) return a.id - b.id;
  return a.text < b.text ? -1 : 1;
}

const sharedInts = (length: number) => new Int32Array(new SharedArrayBuffer(4 * length));

/** A copy that threads share. */
export function shared<T extends Uint8Array | Uint16Array | Int32Array>(
  kind: { new (buffer: SharedArrayBuffer): T; readonly BYTES_PER_ELEMENT: number },
  values: ArrayLike<number>,
): T {
  const copy = new kind(new SharedArrayBuffer(values.length * kind.BYTES_PER_ELEMENT));
  copy.set(values);
  return copy;
}
