import { webcrypto } from 'node:crypto';

/** Clocks and random sources that an environment must not read, each as owner and name of a method. */
const FORBIDDEN: readonly (readonly [owner: object, name: string, title: string])[] = [
  [Math, 'random', 'Math.random'],
  [Date, 'now', 'Date.now'],
  [performance, 'now', 'performance.now'],
  [webcrypto, 'getRandomValues', 'crypto.getRandomValues'],
  [webcrypto, 'randomUUID', 'crypto.randomUUID'],
];

/**
 * Runs a function and returns the clocks and random sources it read. Reads after an asynchronous function's first wait
 * are not seen, because other code also runs then.
 */
export function trapping<T>(run: () => T, onRead: (title: string) => void): T {
  const originals = FORBIDDEN.map(([owner, name]) => Object.getOwnPropertyDescriptor(owner, name));
  const OriginalDate = globalThis.Date;
  for (const [owner, name, title] of FORBIDDEN) {
    const original = (owner as Record<string, (...args: unknown[]) => unknown>)[name];
    Object.defineProperty(owner, name, {
      configurable: true,
      writable: true,
      value(...args: unknown[]) {
        onRead(title);
        return original.apply(owner, args);
      },
    });
  }
  globalThis.Date = new Proxy(OriginalDate, {
    construct(target, args, newTarget) {
      if (args.length === 0) onRead('new Date()');
      return Reflect.construct(target, args, newTarget);
    },
  });
  try {
    return run();
  } finally {
    globalThis.Date = OriginalDate;
    FORBIDDEN.forEach(([owner, name], index) => {
      const original = originals[index];
      if (original) Object.defineProperty(owner, name, original);
      else Reflect.deleteProperty(owner, name);
    });
  }
}
