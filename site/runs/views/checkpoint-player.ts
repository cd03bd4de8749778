import type { Json } from '../../../shared/json.ts';
import type { PlayOnReply } from '../../../shared/run-folder/requests.ts';
import type { OwnPlayer } from '../../player/play-session.ts';

/** The player that is neither in the page nor on the environment server. */
export const CHECKPOINT = 'checkpoint';

/** Asks a checkpoint to play on after these actions. */
export type PlayOn = (actions: readonly Json[]) => Promise<PlayOnReply>;

/** A checkpoint as a player of a branch: it plans up to the end, and again after actions of others. */
export class CheckpointPlayer {
  readonly #playOn: PlayOn;
  readonly #floor: number;
  #plan: { readonly from: readonly Json[]; readonly reply: Promise<PlayOnReply> } | undefined;
  /** The latest reply. */
  reply: PlayOnReply | undefined;
  /** Steps after which it has played all its turns. */
  end: number | undefined;

  /** @param floor steps before the branch */
  constructor(playOn: PlayOn, floor: number) {
    this.#playOn = playOn;
    this.#floor = floor;
  }

  readonly next: OwnPlayer = async moves => {
    const taken = moves.slice(this.#floor).map(({ action }) => action);
    const planned = await this.#planned(taken);
    if (planned.length === taken.length) this.end = moves.length;
    return planned[taken.length];
  };

  /** The actions of its plan, from the branch on, which begin with those taken. */
  async #planned(taken: readonly Json[]): Promise<readonly Json[]> {
    for (;;) {
      const plan = this.#plan;
      if (plan) {
        const reply = await plan.reply;
        const planned = [...plan.from, ...reply.actions];
        this.reply = reply;
        if (taken.length <= planned.length && taken.every((action, i) => isAlike(action, planned[i])))
          return planned;
      }
      if (plan !== this.#plan) continue;
      const reply = this.#playOn(taken);
      this.#plan = { from: taken, reply };
      // After a failure the next step asks again.
      reply.catch(() => {
        if (this.#plan?.reply === reply) this.#plan = undefined;
      });
    }
  }
}

const isAlike = (a: Json, b: Json): boolean => JSON.stringify(a) === JSON.stringify(b);
