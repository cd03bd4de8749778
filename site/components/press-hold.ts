import type { RefObject } from 'preact';
import { useEffect, useReducer, useRef } from 'preact/hooks';

/**
 * A value that does not change while a pointer is pressed on an element: an element that moves or disappears between press
 * and release gets no click. Of several changes in that time the last one is shown.
 */
export function useHeld<T>(place: RefObject<HTMLElement | null>, value: T): T {
  const [, redraw] = useReducer((count: number) => count + 1, 0);
  const isPressed = useRef(false);
  const shown = useRef(value);
  if (!isPressed.current) shown.current = value;
  useEffect(() => {
    const press = ({ target }: Event) => {
      if (place.current?.contains(target as Node)) isPressed.current = true;
    };
    const release = () => {
      if (!isPressed.current) return;
      // The click follows the release in the same task.
      setTimeout(() => {
        isPressed.current = false;
        redraw(undefined);
      });
    };
    addEventListener('pointerdown', press);
    addEventListener('pointerup', release);
    addEventListener('pointercancel', release);
    return () => {
      removeEventListener('pointerdown', press);
      removeEventListener('pointerup', release);
      removeEventListener('pointercancel', release);
    };
  }, []);
  return shown.current;
}
