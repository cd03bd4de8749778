import protobuf from 'protobufjs';
import t from 'tap';
import {
  decodeForwardBackwardOutput,
  decodeForwardBackwardRequest,
  decodeSampleResponse,
  encodeForwardBackwardOutput,
  encodeForwardBackwardRequest,
  encodeSampleResponse,
  type ForwardBackwardRequest,
  NO_LOGPROB,
  type SampleResponse,
} from './proto.ts';

/** Bytes that SDK 0.38 wrote. */
const KNOWN_REQUEST =
  '0a09533a747261696e3a3010011a380a0c0a0a0a08050000000600000012280a0d7461726765745f746f6b656e7312170a10060000000000000007000000000000001802220102220d63726f73735f656e74726f7079';
const KNOWN_OUTPUT =
  '0a0b41727261795265636f7264123a12360a086c6f6770726f6273122a0a0c000080bf000000c0000040c01218000000000000000008000000000000000c00000000000000180118021a130a086c6f73733a73756d11000000000000f83f';
const KNOWN_SAMPLE =
  '0a14120807000000090000001a08000080bf000000c012080000c07f000000bf1a180a0800000000060000001208804fc3c7000000bf18012002';

const request: ForwardBackwardRequest = {
  modelId: 'S:train:0',
  seqId: 1,
  data: [
    {
      tokens: Int32Array.of(5, 6),
      inputs: new Map([['target_tokens', { values: Int32Array.of(6, 7), shape: [2] }]]),
    },
  ],
  lossFn: 'cross_entropy',
  lossConfig: {},
  forwardOnly: false,
};
const sample: SampleResponse = {
  sequences: [{ stopReason: 'stop', tokens: Int32Array.of(7, 9), logprobs: Float32Array.of(-1, -2) }],
  promptLogprobs: Float32Array.of(NaN, -0.5),
  topkPromptLogprobs: {
    tokenIds: Int32Array.of(0, 6),
    logprobs: Float32Array.of(NO_LOGPROB, -0.5),
    k: 1,
    length: 2,
  },
};

const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');
const bytes = (text: string): Uint8Array => Buffer.from(text, 'hex');
const outputs = [{ logprobs: Float32Array.of(-1, -2) }, { logprobs: Float32Array.of(-3) }];

t.test('the codec writes and reads the bytes of the SDK', async t => {
  t.equal(hex(encodeForwardBackwardRequest(request)), KNOWN_REQUEST);
  t.same(decodeForwardBackwardRequest(bytes(KNOWN_REQUEST)), request);
  const output = { outputs, metrics: { 'loss:sum': 1.5 } };
  t.equal(hex(encodeForwardBackwardOutput(output)), KNOWN_OUTPUT);
  t.same(decodeForwardBackwardOutput(bytes(KNOWN_OUTPUT)), output);
  t.equal(hex(encodeSampleResponse(sample)), KNOWN_SAMPLE);
  t.same(decodeSampleResponse(bytes(KNOWN_SAMPLE)), sample);
});

t.test('a request keeps floats, negative ids, settings of a loss and forward_only', async t => {
  const whole: ForwardBackwardRequest = {
    ...request,
    data: [
      {
        tokens: Int32Array.of(1, 2, 3),
        inputs: new Map([
          ['target_tokens', { values: Int32Array.of(-5, 0, 2 ** 31 - 1), shape: [3] }],
          ['weights', { values: Float32Array.of(0, -1.5, 2), shape: [3] }],
        ]),
      },
      { tokens: new Int32Array(), inputs: new Map() },
    ],
    lossFn: 'ppo',
    lossConfig: { clip_low_threshold: 0.8, stat: 'kl' },
    forwardOnly: true,
  };
  t.same(decodeForwardBackwardRequest(encodeForwardBackwardRequest(whole)), whole);
});

t.test('loss_fn_config is read where loss_fn_config_v2 is absent', async t => {
  const writer = protobuf.Writer.create();
  writer
    .uint32((5 << 3) | 2)
    .fork()
    .uint32(10)
    .string('beta')
    .uint32(17)
    .double(0.25)
    .ldelim();
  t.same(decodeForwardBackwardRequest(writer.finish()).lossConfig, { beta: 0.25 });
});

t.test('chunks of a prompt are joined', async t => {
  const writer = protobuf.Writer.create();
  writer.uint32(26).fork();
  for (const token of [7, 8]) {
    writer
      .uint32(10)
      .fork()
      .uint32(10)
      .fork()
      .uint32(10)
      .bytes(Uint8Array.of(token, 0, 0, 0))
      .ldelim()
      .ldelim();
  }
  writer.ldelim();
  t.same(decodeForwardBackwardRequest(writer.finish()).data[0].tokens, Int32Array.of(7, 8));
});

t.test(
  'the largest request of an SDK is read: 1,024 datums with 40 chunks and three inputs each',
  async t => {
    const writer = protobuf.Writer.create();
    for (let i = 0; i < 1024; i++) {
      writer.uint32(26).fork();
      for (let j = 0; j < 40; j++) writer.uint32(10).bytes(Buffer.from('0a060a0407000000', 'hex'));
      for (const name of ['target_tokens', 'logprobs', 'advantages']) {
        const tensor = Buffer.concat([
          Buffer.from('0aa001', 'hex'),
          Buffer.alloc(160),
          Buffer.from('1801220128', 'hex'),
        ]);
        writer.uint32(18).fork().uint32(10).string(name).uint32(18).bytes(tensor).ldelim();
      }
      writer.ldelim();
    }
    const { data } = decodeForwardBackwardRequest(writer.finish());
    t.equal(data.length, 1024);
    t.ok(
      data.every(({ tokens, inputs }) => tokens.length === 40 && inputs.get('advantages')!.shape[0] === 40),
    );
  },
);

t.test('samples without log-probabilities, tokens or prompt scores survive', async t => {
  const empty: SampleResponse = {
    sequences: [{ stopReason: 'length', tokens: new Int32Array(), logprobs: null }],
    promptLogprobs: null,
    topkPromptLogprobs: null,
  };
  t.same(decodeSampleResponse(encodeSampleResponse(empty)), empty);
});

/** A request of one datum, with the bytes of its only field. */
function datum(write: (writer: protobuf.Writer) => void): Uint8Array {
  const writer = protobuf.Writer.create().uint32(26).fork();
  write(writer);
  return writer.ldelim().finish();
}

/** A request with the tensor `x`. */
const tensor = (write: (writer: protobuf.Writer) => void): Uint8Array =>
  datum(writer => {
    write(writer.uint32(18).fork().uint32(10).string('x').uint32(18).fork());
    writer.ldelim().ldelim();
  });

t.test('an invalid request is refused with the name of the field', async t => {
  const refused = (message: Uint8Array, pattern: RegExp) =>
    t.throws(() => decodeForwardBackwardRequest(message), { name: 'TinkerProtocolError', message: pattern });
  refused(Buffer.from('{"model_id": "S"}'), /^the request is not a protobuf message/);
  refused(bytes(KNOWN_REQUEST).subarray(0, 60), /is not a protobuf message/);
  refused(
    tensor(writer => writer.uint32(10).bytes(new Uint8Array(7)).uint32(24).int32(1)),
    /^data\[0\]\.loss_fn_inputs\.x has 7 bytes, not a multiple of 4/,
  );
  refused(
    tensor(writer => writer.uint32(10).bytes(new Uint8Array(8)).uint32(24).int32(4)),
    /x has dtype 4: send float32/,
  );
  refused(
    tensor(writer => writer.uint32(10).bytes(new Uint8Array(8)).uint32(24).int32(1).uint32(32).int64(3)),
    /x has 2 numbers, but its shape is \[3\]/,
  );
  refused(
    tensor(writer => writer.uint32(10).bytes(Buffer.alloc(8, 0x7f)).uint32(24).int32(2)),
    /x has 9187201950435737471, which is out of range/,
  );
  refused(
    tensor(writer => writer.uint32(18).bytes(new Uint8Array(8))),
    /x is sparse/,
  );
  refused(
    tensor(writer => writer.uint32(34).bytes(new Uint8Array(1e6))),
    /x has more than 8 dimensions/,
  );
  refused(
    datum(writer => writer.uint32(10).fork().uint32(18).bytes(new Uint8Array(2)).ldelim()),
    /^data\[0\]\.model_input has an image/,
  );
  refused(
    datum(writer => {
      for (let i = 0; i <= 65_536; i++) writer.uint32(10).bytes(new Uint8Array());
    }),
    /more than 65536 datums, chunks and inputs/,
  );
  for (const unit of [
    [0x2a, 0],
    [0x1a, 0],
    [0x10, 1],
    [0x78, 1],
  ]) {
    const many = Buffer.alloc(2 * 65_537, Buffer.from(unit));
    refused(many, /^the request has more than 65536 datums, chunks and inputs/);
  }
  refused(
    datum(writer => writer.uint32(10).bytes(Buffer.alloc(130, Buffer.from([0x0a, 0])))),
    /^data\[0\]\.model_input has more than 64 fields/,
  );
  refused(
    tensor(writer => writer.uint32(34).bytes(new Uint8Array(9)).uint32(10).bytes(new Uint8Array(4))),
    /x has more than 8 dimensions/,
  );
});

t.test('a reply that is not a message, or does not fit together, is refused', async t => {
  const fault = { name: 'TinkerProtocolError' };
  t.throws(() => decodeSampleResponse(Buffer.from('<html>')), fault);
  t.throws(() => decodeForwardBackwardOutput(Buffer.from('{"error"')), fault);
  const short = Buffer.from(KNOWN_OUTPUT.replace('18021a13', '18031a13'), 'hex');
  t.throws(() => decodeForwardBackwardOutput(short), { message: /offsets has 3 numbers for 3 datums/ });
});

t.test('random bytes end in a request or in a named error', async t => {
  let state = 1;
  for (let round = 0; round < 2000; round++) {
    const noise = bytes(KNOWN_REQUEST);
    for (let change = 0; change < 3; change++) {
      state = (Math.imul(state, 1103515245) + 12345) >>> 0;
      noise[(state >>> 8) % noise.length] = state & 255;
    }
    try {
      decodeForwardBackwardRequest(noise);
    } catch (error) {
      if ((error as Error).name !== 'TinkerProtocolError') t.fail(String(error));
    }
  }
});
