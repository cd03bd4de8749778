import type { JsonObject } from '../../shared/json.ts';
import { suggestion } from '../../shared/text.ts';
import type { AnyEnvironment } from '../environments/core/environment.ts';
import { resolveAgainst } from '../environments/core/settings.ts';
import { invalidRequest } from '../problems.ts';
import { actionText } from './action-text.ts';
import { autoReset } from './auto-reset.ts';
import { history } from './history.ts';
import { UnfitWrapper, type Wrapper } from './layer.ts';
import { observationFormat } from './observation-format.ts';
import { observeValidActions } from './observe-valid-actions.ts';
import { randomActions } from './random-actions.ts';
import { record } from './record.ts';
import { rewardClip } from './reward-clip.ts';
import { rewardScale } from './reward-scale.ts';
import { stepPenalty } from './step-penalty.ts';
import { stickyActions } from './sticky-actions.ts';
import { timeLimit } from './time-limit.ts';

/** A wrapper asked for by name. */
export interface WrapperChoice {
  readonly name: string;
  readonly options?: JsonObject;
}

/** Every wrapper there is, by name. */
export const WRAPPERS: ReadonlyMap<string, Wrapper> = new Map(
  [
    timeLimit,
    actionText,
    stickyActions,
    randomActions,
    rewardScale,
    rewardClip,
    stepPenalty,
    observationFormat,
    history,
    observeValidActions,
    autoReset,
    record,
  ].map(wrapper => [wrapper.name, wrapper]),
);

/**
 * Applies wrappers in the order given: the first is the innermost.
 * @throws Problem `invalid_request` for an unknown name, wrong options or a wrapper that does not fit
 */
export function wrap(environment: AnyEnvironment, choices: readonly WrapperChoice[]): AnyEnvironment {
  let wrapped = environment;
  choices.forEach((choice, index) => {
    const wrapper = WRAPPERS.get(choice.name);
    if (!wrapper) {
      const known = [...WRAPPERS.keys()].sort().join(', ');
      throw invalidRequest(
        `/wrappers/${index}/name`,
        `unknown wrapper "${choice.name}"${suggestion(choice.name, [...WRAPPERS.keys()])}; available: ${known}`,
      );
    }
    const { value, fault } = resolveAgainst(wrapper.optionsSchema, choice.options ?? {});
    const pointer = `/wrappers/${index}/options`;
    if (fault) throw invalidRequest(pointer + fault.pointer, `wrapper ${wrapper.name}: ${fault.message}`);
    try {
      wrapped = wrapper.wrap(wrapped, value);
    } catch (error) {
      if (!(error instanceof UnfitWrapper)) throw error;
      throw invalidRequest(pointer + error.pointer, `wrapper ${wrapper.name}: ${error.message}`);
    }
  });
  return wrapped;
}
