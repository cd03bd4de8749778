/*
 * The kernels of small policies on the CPU, in WebAssembly with 128-bit vectors. `npm run kernels` compiles them into
 * kernels.wasm, which is committed; kernels.ts loads it and says what each function computes. The memory is the
 * caller's: addresses are bytes from its start, and no kernel has a stack in it. Sums have one order for any number of
 * rows, so a row gets the same bits in every batch. `madd` rounds once where the machine can.
 */
#include <stdint.h>
#include <wasm_simd128.h>

#define EXPORT(name) __attribute__((export_name(#name))) void name
#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("clang loop unroll(full)")

typedef v128_t vec;
typedef uint32_t u32;

INLINE vec load(const float *from) { return wasm_v128_load(from); }
INLINE void store(float *to, vec value) { wasm_v128_store(to, value); }
INLINE vec splat(float value) { return wasm_f32x4_splat(value); }
INLINE vec add(vec a, vec b) { return wasm_f32x4_add(a, b); }
INLINE vec sub(vec a, vec b) { return wasm_f32x4_sub(a, b); }
INLINE vec mul(vec a, vec b) { return wasm_f32x4_mul(a, b); }
INLINE vec divide(vec a, vec b) { return wasm_f32x4_div(a, b); }
INLINE vec madd(vec a, vec b, vec c) { return wasm_f32x4_relaxed_madd(a, b, c); }
#define lane(v, i) wasm_f32x4_extract_lane(v, i)
INLINE float across(vec v) { return (lane(v, 0) + lane(v, 1)) + (lane(v, 2) + lane(v, 3)); }

/*
 * 2^x for x <= 0, error 2e-7: x = n + r with |r| <= 1/2, Taylor's polynomial of 2^r, and n added to the exponent bits.
 * Adding 1.5 * 2^23 rounds x to n and leaves n in the lowest bits. From -127 down it is exactly 0: a denormal number
 * would slow every product with it a hundredfold.
 */
#define LN2 0.6931471805599453
#define C1 LN2
#define C2 (C1 * LN2 / 2)
#define C3 (C2 * LN2 / 3)
#define C4 (C3 * LN2 / 4)
#define C5 (C4 * LN2 / 5)
#define C6 (C5 * LN2 / 6)
INLINE vec power_of_two(vec x) {
  const vec rounding = splat(12582912.0f);
  x = wasm_f32x4_max(x, splat(-127.0f));
  vec shifted = add(x, rounding);
  vec r = sub(x, sub(shifted, rounding));
  vec p = madd(splat((float)C6), r, splat((float)C5));
  p = madd(p, r, splat((float)C4));
  p = madd(p, r, splat((float)C3));
  p = madd(p, r, splat((float)C2));
  p = madd(p, r, splat((float)C1));
  p = madd(p, r, splat(1.0f));
  return wasm_i32x4_add(p, wasm_i32x4_shl(shifted, 23));
}

/* Matrix product: panels of eight outputs, in each the rows by tiles, in each tile the inputs in order. */

INLINE void tile(const int rows, u32 inputs, const char *x, u32 x_stride, const float *weight, const float *bias,
                 char *result, u32 result_stride, int accumulate) {
  vec sums[8];
  UNROLL for (int r = 0; r < rows; r++) {
    sums[2 * r] = load(bias);
    sums[2 * r + 1] = load(bias + 4);
  }
  for (u32 i = 0; i < inputs; i++, weight += 8) {
    vec left = load(weight), right = load(weight + 4);
    UNROLL for (int r = 0; r < rows; r++) {
      vec factor = wasm_v128_load32_splat(x + r * x_stride + 4 * i);
      sums[2 * r] = madd(factor, left, sums[2 * r]);
      sums[2 * r + 1] = madd(factor, right, sums[2 * r + 1]);
    }
  }
  UNROLL for (int r = 0; r < rows; r++, result += result_stride) {
    float *to = (float *)result;
    store(to, accumulate ? add(load(to), sums[2 * r]) : sums[2 * r]);
    store(to + 4, accumulate ? add(load(to + 4), sums[2 * r + 1]) : sums[2 * r + 1]);
  }
}

EXPORT(product)(u32 rows, u32 inputs, u32 panels, const char *x, u32 x_stride, const float *weight, const float *bias,
                char *result, u32 result_stride, int accumulate) {
  for (u32 panel = 0; panel < panels; panel++, weight += 8 * inputs, bias += 8, result += 32) {
    u32 row = 0;
    for (; row + 4 <= rows; row += 4)
      tile(4, inputs, x + row * x_stride, x_stride, weight, bias, result + row * result_stride, result_stride,
           accumulate);
    for (; row < rows; row++)
      tile(1, inputs, x + row * x_stride, x_stride, weight, bias, result + row * result_stride, result_stride,
           accumulate);
  }
}

/* x / sqrt(mean(x^2) + epsilon) * weight, row by row; `stride` in bytes, `width` in floats. */
EXPORT(norm)(u32 rows, const char *x, u32 stride, u32 width, const float *weight, char *result, float inverse_width,
             float epsilon) {
  for (u32 row = 0; row < rows; row++, x += stride, result += stride) {
    const float *from = (const float *)x;
    float *to = (float *)result;
    vec sum = splat(0);
    for (u32 i = 0; i < width; i += 4) sum = madd(load(from + i), load(from + i), sum);
    vec factor = splat(1.0f / __builtin_sqrtf(across(sum) * inverse_width + epsilon));
    for (u32 i = 0; i < width; i += 4) store(to + i, mul(mul(load(from + i), factor), load(weight + i)));
  }
}

/* gate <- gate * sigmoid(gate) * up. With e = exp(-|x|), sigmoid(x) is 1 / (1 + e) from 0 on and e / (1 + e) below. */
EXPORT(gatedSilu)(float *gate, const float *up, u32 count) {
  for (u32 i = 0; i < count; i += 4) {
    vec x = load(gate + i);
    vec e = power_of_two(mul(wasm_f32x4_neg(wasm_f32x4_abs(x)), splat(1.4426950408889634f)));
    vec numerator = wasm_v128_bitselect(e, splat(1), wasm_f32x4_lt(x, splat(0)));
    numerator = mul(mul(x, numerator), load(up + i));
    store(gate + i, divide(numerator, add(e, splat(1))));
  }
}

/* x <- 2^((x - largest) * scale) from `start` to `end`; the four sums of the lanes go to `sums`. */
EXPORT(exponentials)(float *start, float *end, float largest, float scale, float *sums) {
  vec sum = splat(0);
  for (float *at = start; at < end; at += 4) {
    vec e = power_of_two(mul(sub(load(at), splat(largest)), splat(scale)));
    store(at, e);
    sum = add(sum, e);
  }
  store(sums, sum);
}

/* A step of AdamW on four arrays of 4,096 floats, one after the other: weights, gradients, first and second means. */
EXPORT(adamw)(float *arrays, u32 count, float scale, float beta1, float rest1, float beta2, float rest2, float keep,
              float step_size, float inverse_root, float epsilon) {
  for (float *w = arrays; w < arrays + count; w += 4) {
    vec gradient = mul(load(w + 4096), splat(scale));
    vec first = add(mul(splat(beta1), load(w + 8192)), mul(splat(rest1), gradient));
    vec second = add(mul(splat(beta2), load(w + 12288)), mul(mul(splat(rest2), gradient), gradient));
    store(w + 8192, first);
    store(w + 12288, second);
    vec denominator = add(mul(wasm_f32x4_sqrt(second), splat(inverse_root)), splat(epsilon));
    store(w, sub(mul(load(w), splat(keep)), divide(mul(splat(step_size), first), denominator)));
  }
}

/*
 * Attention over a paged cache. A block holds 16 positions; each (layer, key-value head) in it has its keys as
 * [4, size, 4] (four positions side by side, so that a vector of scores needs no sum across lanes), then its values as
 * [16, size].
 */
struct shape {
  u32 heads, groups, size; /* key-value heads, query heads for each of them, floats of a head */
  float query_scale;       /* scores are powers of 2, or before a cap the exponent of e^2s */
  float cap;               /* in units of log 2; 0 for none */
  u32 windowed;
  float *query, *scores;
  const float *future_mask, *past_mask, *queries, *keys, *values;
  float *mixed;
};

struct run {
  u32 row, rows, position;
  float *const *blocks;
};

enum { BLOCK = 16, LANES = 4 };

/* The head at `from`, turned by the angles, times `factor`, to `to`. */
INLINE void turn_query(u32 size, const float *from, const float *angle, vec factor, float *to) {
  u32 half = size / 2;
  for (u32 j = 0; j < half; j += LANES) {
    vec u = load(from + j), v = load(from + half + j);
    vec cos = load(angle + j), sin = load(angle + half + j);
    store(to + j, mul(sub(mul(u, cos), mul(v, sin)), factor));
    store(to + half + j, mul(add(mul(v, cos), mul(u, sin)), factor));
  }
}

/* The same of a key, to its column among the keys of four positions. */
INLINE void turn_key(u32 size, const float *from, const float *angle, float *to) {
  u32 half = size / 2;
  for (u32 j = 0; j < half; j += LANES) {
    vec u = load(from + j), v = load(from + half + j);
    vec cos = load(angle + j), sin = load(angle + half + j);
    vec first = sub(mul(u, cos), mul(v, sin)), second = add(mul(v, cos), mul(u, sin));
    float *a = to + LANES * j, *b = to + LANES * (half + j);
    wasm_v128_store32_lane(a, first, 0), wasm_v128_store32_lane(a + 4, first, 1);
    wasm_v128_store32_lane(a + 8, first, 2), wasm_v128_store32_lane(a + 12, first, 3);
    wasm_v128_store32_lane(b, second, 0), wasm_v128_store32_lane(b + 4, second, 1);
    wasm_v128_store32_lane(b + 8, second, 2), wasm_v128_store32_lane(b + 12, second, 3);
  }
}

/* tanh(s) = (e^2s - 1) / (e^2s + 1); beyond 2^60 it is 1 in float32. */
INLINE vec capped(float cap, vec scores) {
  vec e = power_of_two(wasm_f32x4_min(scores, splat(60.0f)));
  return mul(divide(sub(e, splat(1)), add(e, splat(1))), splat(cap));
}

/* Scores of the 16 positions of a block; each vector of positions has two sums, to keep multiply-adds in flight. */
INLINE vec score_block(const struct shape *shape, u32 size, const float *keys, const float *past, const float *future,
                       float *scores, vec largest) {
  const float *query = shape->query;
  const float *k0 = keys, *k1 = k0 + LANES * size, *k2 = k1 + LANES * size, *k3 = k2 + LANES * size;
  vec a0 = splat(0), a1 = a0, a2 = a0, a3 = a0, b0 = a0, b1 = a0, b2 = a0, b3 = a0;
  for (u32 d = 0; d < size; d += 2) {
    vec even = splat(query[d]), odd = splat(query[d + 1]);
    a0 = madd(even, load(k0 + LANES * d), a0);
    a1 = madd(even, load(k1 + LANES * d), a1);
    a2 = madd(even, load(k2 + LANES * d), a2);
    a3 = madd(even, load(k3 + LANES * d), a3);
    b0 = madd(odd, load(k0 + LANES * d + LANES), b0);
    b1 = madd(odd, load(k1 + LANES * d + LANES), b1);
    b2 = madd(odd, load(k2 + LANES * d + LANES), b2);
    b3 = madd(odd, load(k3 + LANES * d + LANES), b3);
  }
  vec s0 = add(a0, b0), s1 = add(a1, b1), s2 = add(a2, b2), s3 = add(a3, b3);
  if (shape->cap != 0) {
    s0 = capped(shape->cap, s0), s1 = capped(shape->cap, s1);
    s2 = capped(shape->cap, s2), s3 = capped(shape->cap, s3);
  }
  if (past) {
    s0 = add(s0, load(past)), s1 = add(s1, load(past + 4));
    s2 = add(s2, load(past + 8)), s3 = add(s3, load(past + 12));
  }
  if (future) {
    s0 = add(s0, load(future)), s1 = add(s1, load(future + 4));
    s2 = add(s2, load(future + 8)), s3 = add(s3, load(future + 12));
  }
  store(scores, s0), store(scores + 4, s1), store(scores + 8, s2), store(scores + 12, s3);
  return wasm_f32x4_max(wasm_f32x4_max(wasm_f32x4_max(wasm_f32x4_max(largest, s0), s1), s2), s3);
}

/* Mixes `count` vectors of the values, from the one at `offset` floats on; few of them have two sums each. */
INLINE void mix(const int count, u32 size, const float *scores, float *const *blocks, u32 first, u32 last, u32 head,
                u32 offset, vec inverse, float *to) {
  const int phases = count <= 4 ? 2 : 1;
  vec sums[8];
  UNROLL for (int j = 0; j < count * phases; j++) sums[j] = splat(0);
  for (u32 block = first; block <= last; block++, scores += BLOCK) {
    const float *values = blocks[block] + head + BLOCK * size + offset;
    for (int p = 0; p < BLOCK; p += 2, values += 2 * size) {
      vec even = splat(scores[p]), odd = splat(scores[p + 1]);
      UNROLL for (int j = 0; j < count; j++) sums[j] = madd(even, load(values + 4 * j), sums[j]);
      const int other = phases == 2 ? count : 0;
      UNROLL for (int j = 0; j < count; j++)
        sums[other + j] = madd(odd, load(values + size + 4 * j), sums[other + j]);
    }
  }
  UNROLL for (int j = 0; j < count; j++)
    store(to + 4 * j, mul(phases == 2 ? add(sums[j], sums[count + j]) : sums[j], inverse));
}

INLINE void attend_head(const struct shape *shape, u32 size, float *const *blocks, u32 head, const float *angle, u32 position,
                        u32 window, const float *query, float *mixed) {
  u32 last = position / BLOCK, first = 0;
  const float *past = 0;
  if (shape->windowed) {
    u32 hidden = position >= window ? position + 1 - window : 0;
    first = hidden / BLOCK;
    past = shape->past_mask + BLOCK - hidden % BLOCK;
  }
  turn_query(size, query, angle, splat(shape->query_scale), shape->query);
  vec largest = splat(-1e30f);
  float *score = shape->scores;
  for (u32 block = first; block < last; block++, score += BLOCK) {
    largest = score_block(shape, size, blocks[block] + head, past, 0, score, largest);
    if (past) past = shape->past_mask + BLOCK;
  }
  const float *future = shape->future_mask + BLOCK - 1 - position % BLOCK;
  largest = score_block(shape, size, blocks[last] + head, past, future, score, largest);
  float *end = score + BLOCK;
  float a = lane(largest, 0) > lane(largest, 1) ? lane(largest, 0) : lane(largest, 1);
  float b = lane(largest, 2) > lane(largest, 3) ? lane(largest, 2) : lane(largest, 3);
  largest = splat(a > b ? a : b);
  vec total = splat(0);
  for (float *at = shape->scores; at < end; at += LANES) {
    vec weight = power_of_two(sub(load(at), largest));
    store(at, weight);
    total = add(total, weight);
  }
  vec inverse = splat(1.0f / across(total));
  u32 offset = 0;
  for (; offset + 32 <= size; offset += 32)
    mix(8, size, shape->scores, blocks, first, last, head, offset, inverse, mixed + offset);
  switch (size - offset) {
    case 24: mix(6, size, shape->scores, blocks, first, last, head, offset, inverse, mixed + offset); break;
    case 16: mix(4, size, shape->scores, blocks, first, last, head, offset, inverse, mixed + offset); break;
    case 8: mix(2, size, shape->scores, blocks, first, last, head, offset, inverse, mixed + offset); break;
  }
}

/* For each run: all its keys and values first, so that no load waits for a store; then the attention of each row. */
EXPORT(attend)(const struct shape *given, const struct run *run, u32 run_count, u32 layer_offset, const float *angles,
               u32 window) {
  const struct shape own = *given, *shape = &own; /* no store changes it */
  u32 size = own.size, heads = own.heads, groups = own.groups;
  for (const struct run *end = run + run_count; run < end; run++) {
    for (u32 head = 0; head < heads; head++) {
      u32 head_offset = layer_offset / 4 + head * 2 * BLOCK * size;
      for (u32 i = 0; i < run->rows; i++) {
        u32 position = run->position + i, in_block = position % BLOCK;
        u32 from = ((run->row + i) * heads + head) * size;
        float *block = run->blocks[position / BLOCK] + head_offset;
        float *key = block + in_block / LANES * LANES * size + in_block % LANES;
        turn_key(size, shape->keys + from, angles + position * size, key);
        float *value = block + BLOCK * size + in_block * size;
        for (u32 j = 0; j < size; j += LANES) store(value + j, load(shape->values + from + j));
      }
    }
    for (u32 head = 0; head < heads; head++) {
      u32 head_offset = layer_offset / 4 + head * 2 * BLOCK * size;
      for (u32 i = 0; i < run->rows; i++) {
        u32 position = run->position + i;
        for (u32 group = 0; group < groups; group++) {
          u32 at = ((run->row + i) * heads * groups + head * groups + group) * size;
          attend_head(shape, size, run->blocks, head_offset, angles + position * size, position, window,
                      shape->queries + at, shape->mixed + at);
        }
      }
    }
  }
}
