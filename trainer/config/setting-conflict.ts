/** A setting that cannot stand next to the others, and why. */
export interface SettingConflict {
  readonly key: string;
  readonly message: string;
}
