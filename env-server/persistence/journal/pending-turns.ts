export type Reply = () => void;

/** The records of one turn of the event loop or of several, with the replies that wait for them. */
export interface PendingTurns {
  readonly frames: Buffer;
  readonly replies: Reply[];
}

/** One that fails keeps no other from being delivered. */
export function deliverAll(replies: readonly Reply[]): void {
  for (const reply of replies) {
    try {
      reply();
    } catch (error) {
      setImmediate(() => {
        throw error;
      });
    }
  }
}
