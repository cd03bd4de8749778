const EVERY_MS = 10;

/** Waits until something that comes about on its own has come about; the test's own time limit is the longest wait. */
export async function until(condition: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await condition())) await new Promise(resolve => setTimeout(resolve, EVERY_MS));
}
