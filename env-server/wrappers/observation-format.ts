import Type, { type Static } from 'typebox';
import type { ObservationFormat } from '../environments/environment.ts';
import { observationSpaces } from '../environments/spaces.ts';
import { altered, UnfitWrapper, type Wrapper } from './layer.ts';

const FORMATS = [
  'grid',
  'coord',
  'grid_coord',
  'image',
  'structured',
] as const satisfies readonly ObservationFormat[];

const optionsSchema = Type.Object(
  {
    format: Type.Union(
      FORMATS.map(format => Type.Literal(format)),
      {
        description:
          'The form that observations take in place of text; structured is an object, image a PNG as data: URL.',
      },
    ),
  },
  { additionalProperties: false },
);
type Options = Static<typeof optionsSchema>;

export const observationFormat: Wrapper = {
  name: 'observation_format',
  title: 'Chooses the form of the observation.',
  optionsSchema,
  wrap(environment, options) {
    const { format: chosen } = options as Options;
    const { id, observationFormats } = environment.spec;
    if (!observationFormats.includes(chosen)) {
      throw new UnfitWrapper(
        '/format',
        `${id} has no ${chosen} form; it has ${observationFormats.join(', ')}`,
      );
    }
    return altered(environment, {
      observationSpaces: config => {
        const spaces = observationSpaces(environment, config);
        return chosen === 'structured' ? { ...spaces, text: spaces.structured } : spaces;
      },
      observe: (state, format) => environment.observe(state, format === 'text' ? chosen : format),
    });
  },
};
