import type { RefObject } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';

/** Distance from the window within which something counts as near, in windows. */
const MARGIN = '100% 0px';

const listeners = new WeakMap<Element, () => void>();
let observer: IntersectionObserver | undefined;

/** Calls back once, when the element comes near the window. */
function whenNear(element: Element, listener: () => void): () => void {
  observer ??= new IntersectionObserver(
    entries => {
      for (const { target, isIntersecting } of entries) {
        if (!isIntersecting) continue;
        listeners.get(target)?.();
        observer!.unobserve(target);
      }
    },
    { rootMargin: MARGIN },
  );
  listeners.set(element, listener);
  observer.observe(element);
  return () => {
    listeners.delete(element);
    observer!.unobserve(element);
  };
}

/**
 * True once an element has been in or near the window: thousands of tokens are rendered only when they are about to be seen.
 * @param first true for elements visible at first, which are rendered at once
 */
export function useNear<E extends Element>(first: boolean): readonly [RefObject<E | null>, boolean] {
  const place: RefObject<E | null> = useRef(null);
  const [near, setNear] = useState(first);
  useEffect(() => (first ? undefined : whenNear(place.current!, () => setNear(true))), []);
  return [place, near];
}
