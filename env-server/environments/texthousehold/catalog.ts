/** Furniture and things of a household. Names follow ALFWorld, so policies trained there know the words. */

export interface ReceptacleKind {
  /** Its content is hidden, and nothing can be put in, while it is closed. */
  readonly openable?: boolean;
  /** Things lie in it rather than on it. */
  readonly inside?: boolean;
  /** Treatment it gives a thing held in front of it. */
  readonly appliance?: Treatment;
}

export type Treatment = 'clean' | 'heat' | 'cool';

export const RECEPTACLES: { readonly [kind: string]: ReceptacleKind } = {
  armchair: {},
  bathtubbasin: { inside: true },
  bed: {},
  cabinet: { openable: true, inside: true },
  coffeemachine: {},
  coffeetable: {},
  countertop: {},
  desk: {},
  diningtable: {},
  drawer: { openable: true, inside: true },
  dresser: {},
  fridge: { openable: true, inside: true, appliance: 'cool' },
  garbagecan: { inside: true },
  laundryhamper: { openable: true, inside: true },
  microwave: { openable: true, inside: true, appliance: 'heat' },
  safe: { openable: true, inside: true },
  shelf: {},
  sidetable: {},
  sinkbasin: { inside: true, appliance: 'clean' },
  sofa: {},
  stoveburner: {},
  toilet: {},
  towelholder: {},
  tvstand: {},
};

export interface ThingKind {
  /** Treatments it allows. */
  readonly treatments?: readonly Treatment[];
  /** Stays where it is and gives light when used. */
  readonly lamp?: boolean;
}

const FOOD: ThingKind = { treatments: ['clean', 'heat', 'cool'] };
const DISH: ThingKind = { treatments: ['clean', 'heat', 'cool'] };
const WASHABLE: ThingKind = { treatments: ['clean'] };

export const THINGS: { readonly [kind: string]: ThingKind } = {
  alarmclock: {},
  apple: FOOD,
  book: {},
  bowl: { treatments: ['clean', 'cool'] },
  box: {},
  bread: { treatments: ['heat', 'cool'] },
  candle: {},
  cd: {},
  cellphone: {},
  cloth: WASHABLE,
  creditcard: {},
  cup: DISH,
  desklamp: { lamp: true },
  dishsponge: WASHABLE,
  egg: FOOD,
  fork: WASHABLE,
  handtowel: {},
  keychain: {},
  knife: WASHABLE,
  ladle: WASHABLE,
  laptop: {},
  lettuce: { treatments: ['clean', 'cool'] },
  mug: DISH,
  newspaper: {},
  pan: { treatments: ['clean', 'cool'] },
  pen: {},
  pencil: {},
  peppershaker: {},
  pillow: {},
  plate: DISH,
  pot: { treatments: ['clean', 'cool'] },
  potato: FOOD,
  remotecontrol: {},
  saltshaker: {},
  soapbar: WASHABLE,
  soapbottle: {},
  spatula: WASHABLE,
  spoon: WASHABLE,
  spraybottle: {},
  statue: {},
  teddybear: {},
  tissuebox: {},
  toiletpaper: {},
  tomato: FOOD,
  vase: {},
  watch: {},
  winebottle: { treatments: ['cool'] },
};

export interface RoomKind {
  /** Least and greatest number of each kind of receptacle. */
  readonly receptacles: { readonly [kind: string]: readonly [number, number] };
  readonly things: readonly string[];
}

export const ROOMS: { readonly [room: string]: RoomKind } = {
  kitchen: {
    receptacles: {
      cabinet: [3, 6], coffeemachine: [1, 1], countertop: [1, 3], diningtable: [0, 1], drawer: [2, 4], fridge: [1, 1],
      garbagecan: [1, 1], microwave: [1, 1], shelf: [0, 2], sinkbasin: [1, 1], stoveburner: [2, 4],
    }, // biome-ignore format: a table reads better in rows
    things: [
      'apple', 'bowl', 'bread', 'cup', 'dishsponge', 'egg', 'fork', 'knife', 'ladle', 'lettuce', 'mug', 'pan',
      'peppershaker', 'plate', 'pot', 'potato', 'saltshaker', 'soapbottle', 'spatula', 'spoon', 'tomato', 'winebottle',
    ], // biome-ignore format: a list reads better in rows
  },
  bedroom: {
    receptacles: {
      bed: [1, 1], desk: [1, 1], drawer: [2, 4], dresser: [1, 1], garbagecan: [1, 1], laundryhamper: [0, 1],
      safe: [0, 1], shelf: [1, 4], sidetable: [1, 2],
    }, // biome-ignore format: a table reads better in rows
    things: [
      'alarmclock', 'book', 'bowl', 'cd', 'cellphone', 'cloth', 'creditcard', 'keychain', 'laptop', 'mug', 'pen', 'pencil',
      'pillow', 'teddybear', 'watch',
    ], // biome-ignore format: a list reads better in rows
  },
  bathroom: {
    receptacles: {
      bathtubbasin: [0, 1], cabinet: [2, 4], countertop: [1, 1], drawer: [1, 3], garbagecan: [1, 1], shelf: [0, 2],
      sinkbasin: [1, 2], toilet: [1, 1], towelholder: [1, 1],
    }, // biome-ignore format: a table reads better in rows
    things: [
      'candle',
      'cloth',
      'dishsponge',
      'handtowel',
      'soapbar',
      'soapbottle',
      'spraybottle',
      'tissuebox',
      'toiletpaper',
    ],
  },
  livingroom: {
    receptacles: {
      armchair: [1, 2], cabinet: [1, 3], coffeetable: [1, 1], diningtable: [0, 1], drawer: [1, 4], garbagecan: [1, 1],
      safe: [0, 1], shelf: [1, 3], sidetable: [1, 2], sofa: [1, 1], tvstand: [1, 1],
    }, // biome-ignore format: a table reads better in rows
    things: [
      'book', 'box', 'cellphone', 'creditcard', 'keychain', 'laptop', 'newspaper', 'pillow', 'remotecontrol', 'statue',
      'tissuebox', 'vase', 'watch',
    ], // biome-ignore format: a list reads better in rows
  },
};

/** Furniture that may hold a desk lamp. */
export const LAMP_PLACES = ['desk', 'sidetable', 'dresser', 'coffeetable'];

/** Places that things are neither found on at the start nor asked to be put on. */
export const BARE = ['coffeemachine', 'towelholder', 'toilet'];
