import type { EpisodeRecord, GroupsRow } from '../../../shared/run-folder/run-files.ts';
import type { EpisodeDigest } from '../../compute/episode-digest.ts';
import type { MetricsReply, RunDetail } from '../../server/reader/run-reader.ts';

/** Consecutive episodes of a trajectory file. */
export interface EpisodeSpan {
  readonly file: string;
  /** Index of the first. */
  readonly first: number;
  readonly count: number;
}

/** A compressed file of an exported run: everything but the episodes. */
export interface ExportedRun {
  readonly detail: RunDetail;
  readonly metrics: MetricsReply;
  readonly groups: readonly GroupsRow[];
  /** Episode summaries by trajectory file. */
  readonly digests: { readonly [file: string]: readonly EpisodeDigest[] };
  /** Episodes of each pack, in the order of its lists. */
  readonly packs: readonly (readonly EpisodeSpan[])[];
}

/** A compressed file of an exported run: the episodes of a pack. */
export interface EpisodePack {
  readonly episodes: readonly EpisodeRecord[];
  /** Token id → text, for the ids of its samples. */
  readonly texts: { readonly [id: string]: string };
}

/** Path of a run's file, or of its pack with this number. */
export function exportedRunPath(id: string, pack?: number): string {
  return `data/run/${fileName(id)}/${pack === undefined ? 'run' : `episodes-${pack}`}.bin`;
}

/** A name that every file system and web server accepts unchanged. */
function fileName(text: string): string {
  return encodeURIComponent(text).replaceAll('%', '~').replaceAll('.', '~2E').replaceAll('*', '~2A');
}

/** The pack of an episode, and its index there; undefined where no pack has it. */
export function packOf(
  { packs }: ExportedRun,
  file: string,
  index: number,
): { readonly pack: number; readonly at: number } | undefined {
  for (const [pack, spans] of packs.entries()) {
    let at = 0;
    for (const span of spans) {
      if (span.file === file && index >= span.first && index < span.first + span.count)
        return { pack, at: at + index - span.first };
      at += span.count;
    }
  }
  return undefined;
}
