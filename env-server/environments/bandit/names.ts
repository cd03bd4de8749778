/** Professions, the settled one first and the daring one second. */
export type NamePair = readonly [settled: string, daring: string];

export const TRAIN_PAIRS: readonly NamePair[] = [
  ['Librarian', 'Stuntman'],
  ['Accountant', 'Gambler'],
  ['Gardener', 'Smuggler'],
  ['Clerk', 'Explorer'],
  ['Pharmacist', 'Acrobat'],
  ['Archivist', 'Prospector'],
  ['Baker', 'Racer'],
  ['Notary', 'Treasure-hunter'],
  ['Postman', 'Test-pilot'],
  ['Tailor', 'Privateer'],
  ['Curator', 'Speculator'],
  ['Dentist', 'Daredevil'],
];

export const TEST_PAIRS: readonly NamePair[] = [
  ['Bookkeeper', 'Adventurer'],
  ['Registrar', 'Bullfighter'],
  ['Shepherd', 'Buccaneer'],
  ['Watchmaker', 'Trapeze-artist'],
  ['Teacher', 'Bounty-hunter'],
  ['Weaver', 'Cliff-diver'],
  ['Carpenter', 'Day-trader'],
  ['Optician', 'Storm-chaser'],
];
