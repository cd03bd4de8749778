import t from 'tap';
import { type Address, formatAddress, parseAddress } from './address.ts';

const NOTHING = { format: undefined, dynamicsSeed: undefined };

t.test('an address survives its way through a link', t => {
  const addresses: Address[] = [
    { view: 'play', envId: 'me/Crossing-v0', preset: 'a b', seed: 0, ...NOTHING },
    { view: 'play', envId: 'Sokoban-v0', preset: undefined, seed: undefined, ...NOTHING },
    {
      view: 'play',
      envId: 'Sokoban-v0',
      preset: undefined,
      seed: 7,
      format: 'structured',
      config: { dim_room: [6, 6] },
      wrappers: [{ name: 'time_limit' }],
      options: { layout: '#?&=' },
      dynamicsSeed: 0,
      actions: ['Up', 1, { x: null }],
      reseeds: [{ step: 1, dynamics_seed: 9 }],
    },
    { view: 'environments' },
    { view: 'watch', sessionId: 's1' },
    { view: 'watch', sessionId: undefined },
    { view: 'watch', sessionId: undefined, env: 'Sokoban-v0', size: 'large', page: 2 },
    { view: 'register', envId: 'me/Crossing-v0' },
  ];
  for (const address of addresses) t.same(parseAddress(formatAddress(address)), address);
  t.equal(formatAddress(addresses[0]), '#/play/me%2FCrossing-v0?preset=a+b&seed=0');
  t.end();
});

t.test('anything else is the play view', t => {
  for (const hash of ['', '#', '#/', '#/nowhere'])
    t.match(parseAddress(hash), { view: 'play', envId: undefined });
  t.match(parseAddress('#/play/%E0%A4%A'), { envId: '%E0%A4%A' }, 'a broken escape is left as it is');
  t.match(parseAddress('#/play/X-v0?seed=-1&dynamics_seed=1e3'), {
    seed: undefined,
    dynamicsSeed: undefined,
  });
  t.match(parseAddress('#/play/X-v0?config=[1]&actions={}&options=%&reseeds={}'), {
    config: undefined,
    actions: undefined,
    options: undefined,
    reseeds: undefined,
  });
  t.end();
});
