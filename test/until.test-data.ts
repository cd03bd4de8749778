const EVERY_MS = 10;
/** Between questions that cost a server more than a look: as often as needed, they would keep it from its work. */
export const SELDOM_MS = 100;

/** Waits until something that comes about on its own has come about; the test's own time limit is the longest wait. */
export async function until(condition: () => boolean | Promise<boolean>, everyMs = EVERY_MS): Promise<void> {
  while (!(await condition())) await new Promise(resolve => setTimeout(resolve, everyMs));
}
