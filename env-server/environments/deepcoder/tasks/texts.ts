import { callTask } from './call-task.ts';
import type { Task } from './task.ts';

/** Shipped tasks about texts; their tests call a function. */
export const TEXT_TASKS: readonly Task[] = [
  callTask(
    'count_vowels',
    'text: str',
    'Count the vowels a, e, i, o, u of a text, small and capital.',
    "return sum(c in 'aeiou' for c in text.lower())",
    (text: string) => text.match(/[aeiou]/gi)?.length ?? 0,
    [['Hello World'], [''], ['xyz'], ['AEIOUaeiou'], ['Programming is fun']],
  ),
  callTask(
    'is_palindrome',
    'text: str',
    'Tell whether a text reads the same backwards, letters and digits only, in any case.',
    's = [c for c in text.lower() if c.isalnum()]\nreturn s == s[::-1]',
    (text: string) => {
      const s = text.toLowerCase().replaceAll(/[^a-z0-9]/g, '');
      return s === [...s].reverse().join('');
    },
    [['A man, a plan, a canal: Panama'], ['race a car'], [''], ['ab'], ['12321'], ['No lemon, no melon']],
  ),
  callTask(
    'run_lengths',
    'text: str',
    'Compress a text: each run of a character becomes the character and the length of the run.',
    "out = ''\ni = 0\nwhile i < len(text):\n    j = i\n    while j < len(text) and text[j] == text[i]:\n        j += 1\n    out += text[i] + str(j - i)\n    i = j\nreturn out",
    (text: string) => text.replaceAll(/(.)\1*/g, run => run[0] + run.length),
    [['aaabbc'], [''], ['abc'], ['zzzzzzzzzzzz'], ['aabbaa']],
  ),
  callTask(
    'is_balanced',
    'text: str',
    'Tell whether the brackets ()[]{} of a text are balanced.',
    "stack = []\npairs = {')': '(', ']': '[', '}': '{'}\nfor c in text:\n    if c in '([{':\n        stack.append(c)\n    elif c in pairs:\n        if not stack or stack.pop() != pairs[c]:\n            return False\nreturn not stack",
    (text: string) => {
      let s = text.replaceAll(/[^()[\]{}]/g, '');
      for (let before = ''; before !== s; ) {
        before = s;
        s = s.replaceAll(/\(\)|\[\]|\{\}/g, '');
      }
      return s === '';
    },
    [['(a[b]{c})'], ['(]'], [''], ['(('], ['}{'], ['[({})]()']],
  ),
  callTask(
    'to_roman',
    'n: int',
    'Write a number from 1 to 3999 in Roman numerals.',
    "out = ''\nfor value, sign in [(1000, 'M'), (900, 'CM'), (500, 'D'), (400, 'CD'), (100, 'C'), (90, 'XC'), (50, 'L'), (40, 'XL'), (10, 'X'), (9, 'IX'), (5, 'V'), (4, 'IV'), (1, 'I')]:\n    while n >= value:\n        out += sign\n        n -= value\nreturn out",
    (n: number) => {
      const digit = (d: number, [one, five, ten]: string) =>
        [
          '',
          one,
          one + one,
          one + one + one,
          one + five,
          five,
          five + one,
          five + one + one,
          five + one + one + one,
          one + ten,
        ][d];
      return (
        'M'.repeat(Math.floor(n / 1000)) +
        digit(Math.floor(n / 100) % 10, 'CDM') +
        digit(Math.floor(n / 10) % 10, 'XLC') +
        digit(n % 10, 'IVX')
      );
    },
    [[4], [9], [58], [1994], [3999], [1]],
  ),
  callTask(
    'longest_common_prefix',
    'words: list[str]',
    'Find the longest common beginning of some words.',
    "if not words:\n    return ''\nfor i, c in enumerate(words[0]):\n    if any(len(w) <= i or w[i] != c for w in words):\n        return words[0][:i]\nreturn words[0]",
    (words: string[]) => {
      let p = words[0] ?? '';
      while (!words.every(w => w.startsWith(p))) p = p.slice(0, -1);
      return p;
    },
    [[['flower', 'flow', 'flight']], [['dog', 'car']], [['same', 'same']], [[]], [['a', 'ab', 'abc']]],
  ),
  callTask(
    'edit_distance',
    'a: str, b: str',
    'Find the least number of insertions, deletions and replacements of a character that make a into b.',
    'row = list(range(len(b) + 1))\nfor i, x in enumerate(a, 1):\n    last, row[0] = row[0], i\n    for j, y in enumerate(b, 1):\n        last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (x != y))\nreturn row[-1]',
    (a: string, b: string) => {
      const d = (i: number, j: number): number =>
        i === 0 || j === 0
          ? i + j
          : a[i - 1] === b[j - 1]
            ? d(i - 1, j - 1)
            : 1 + Math.min(d(i - 1, j), d(i, j - 1), d(i - 1, j - 1));
      return d(a.length, b.length);
    },
    [
      ['kitten', 'sitting'],
      ['', 'abc'],
      ['same', 'same'],
      ['flaw', 'lawn'],
      ['ab', 'ba'],
    ],
  ),
  callTask(
    'group_anagrams',
    'words: list[str]',
    'Group the words made of the same letters. Words keep their order in a group, groups that of their first words.',
    "groups = {}\nfor w in words:\n    groups.setdefault(''.join(sorted(w)), []).append(w)\nreturn list(groups.values())",
    (words: string[]) => {
      const groups = new Map<string, string[]>();
      for (const w of words) {
        const key = [...w].sort().join('');
        groups.set(key, [...(groups.get(key) ?? []), w]);
      }
      return [...groups.values()];
    },
    [[['eat', 'tea', 'tan', 'ate', 'nat', 'bat']], [['']], [['a']], [[]], [['ab', 'ba', 'abc', 'cab']]],
  ),
  callTask(
    'top_words',
    'text: str, k: int',
    'List the k most frequent words, split at blanks, the more frequent first and equals in alphabetical order.',
    'from collections import Counter\ncounts = Counter(text.split())\nreturn sorted(counts, key=lambda w: (-counts[w], w))[:k]',
    (text: string, k: number) => {
      const counts: Record<string, number> = {};
      for (const w of text.split(' ').filter(Boolean)) counts[w] = (counts[w] ?? 0) + 1;
      return Object.keys(counts)
        .sort((a, b) => counts[b] - counts[a] || (a < b ? -1 : 1))
        .slice(0, k);
    },
    [
      ['the cat the dog the cat', 2],
      ['b a', 2],
      ['', 3],
      ['x y z x y x', 1],
      ['one two two three three three', 3],
    ],
  ),
  callTask(
    'caesar',
    'text: str, shift: int',
    'Shift every letter of the alphabet by some places, going round at the end; case stays, other characters stay.',
    "out = ''\nfor c in text:\n    if c.isalpha():\n        base = ord('A') if c.isupper() else ord('a')\n        out += chr((ord(c) - base + shift) % 26 + base)\n    else:\n        out += c\nreturn out",
    (text: string, shift: number) =>
      text.replaceAll(/[a-z]/gi, c => {
        const base = c < 'a' ? 65 : 97;
        return String.fromCharCode(((((c.charCodeAt(0) - base + shift) % 26) + 26) % 26) + base);
      }),
    [
      ['abc XYZ!', 3],
      ['Hello', -5],
      ['', 1],
      ['zZ', 27],
      ['a-b', 0],
    ],
  ),
];
