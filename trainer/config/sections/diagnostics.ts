import Type from 'typebox';
import { count, positive, section } from './schema.ts';

/** Measurements that change nothing in the run but the time it takes. */
export const DiagnosticsSettings = Type.Object(
  {
    /** Whether the reasoning depends on the prompt; for policies that think (`rollout.think`). */
    collapse: Type.Object(
      {
        /** Iterations from one measurement to the next; 0 never. */
        every: count(5),
        /** Reasonings that are compared, each under every prompt: up to samples² sequences are scored, twice. */
        samples: positive(64),
      },
      section,
    ),
    /** Gradients of task, entropy and KL apart, for groups of little and much spread. */
    gradients: Type.Object(
      {
        /** Iterations from one measurement to the next; 0 never. Each costs up to 21 backward passes over parts of the batch. */
        every: count(0),
      },
      section,
    ),
  },
  section,
);
