import type { IntervalMeter } from '../collection/interval-meter.ts';
import type { Agent } from './agent.ts';

/** The agent, with the time in which it has something to answer measured. */
export function meteredAgent(agent: Agent, meter: IntervalMeter): Agent {
  return {
    respond: turn => meter.during(() => agent.respond(turn)),
    release: sequenceId => agent.release(sequenceId),
  };
}
