/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 in plain C, some 200 MB/s, and HMAC. The CLI, which sees the public interface
 * only, has a SHA-256 of its own. */
#include "base/sha256.h"

#include <string.h>

static const uint32_t round_words[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static inline uint32_t
rotate(uint32_t word, uint32_t n_bits)
{
    return word >> n_bits | word << (32 - n_bits);
}

static void
expand(uint32_t schedule[64], const unsigned char *block)
{
    for (uint32_t i = 0; i < 16; i++)
        schedule[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 |
                      (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
    for (uint32_t i = 16; i < 64; i++) {
        uint32_t a = schedule[i - 15];
        uint32_t b = schedule[i - 2];

        schedule[i] = schedule[i - 16] + schedule[i - 7] + (rotate(a, 7) ^ rotate(a, 18) ^ a >> 3) +
                      (rotate(b, 17) ^ rotate(b, 19) ^ b >> 10);
    }
}

static void
compress(uint32_t state[8], const unsigned char *block)
{
    uint32_t schedule[64];
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
    uint32_t e = state[4], f = state[5], g = state[6], h = state[7];

    expand(schedule, block);
    for (uint32_t i = 0; i < 64; i++) {
        uint32_t choice = (e & f) ^ (~e & g);
        uint32_t majority = (a & b) ^ (a & c) ^ (b & c);
        uint32_t first = h + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) + choice +
                         round_words[i] + schedule[i];
        uint32_t second = (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) + majority;

        h = g;
        g = f;
        f = e;
        e = d + first;
        d = c;
        c = b;
        b = a;
        a = first + second;
    }
    const uint32_t change[8] = {a, b, c, d, e, f, g, h};
    for (uint32_t i = 0; i < 8; i++)
        state[i] += change[i];
}

void
sti_sha256_init(struct sti_sha256 *sha)
{
    static const uint32_t start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

    memcpy(sha->state, start, sizeof(start));
    sha->n_bytes = 0;
}

void
sti_sha256_add(struct sti_sha256 *sha, const void *bytes, size_t n_bytes)
{
    const unsigned char *from = bytes;

    while (n_bytes) {
        size_t used = sha->n_bytes % sizeof(sha->block);
        size_t part = sizeof(sha->block) - used;

        if (part > n_bytes)
            part = n_bytes;
        memcpy(sha->block + used, from, part);
        sha->n_bytes += part;
        from += part;
        n_bytes -= part;
        if (used + part == sizeof(sha->block))
            compress(sha->state, sha->block);
    }
}

void
sti_sha256_end(struct sti_sha256 *sha, unsigned char digest[STI_SHA256_BYTES])
{
    static const unsigned char padding[64] = {0x80};
    uint64_t n_bits = sha->n_bytes * 8;
    size_t used = sha->n_bytes % sizeof(sha->block);
    unsigned char length[8];

    for (uint32_t i = 0; i < 8; i++)
        length[i] = (unsigned char)(n_bits >> (56 - 8 * i));
    sti_sha256_add(sha, padding, (used < 56 ? 56 : 120) - used);
    sti_sha256_add(sha, length, sizeof(length));
    for (uint32_t i = 0; i < STI_SHA256_BYTES; i++)
        digest[i] = (unsigned char)(sha->state[i / 4] >> (24 - 8 * (i % 4)));
}

void
sti_hmac_init(struct sti_hmac *hmac, const void *key, size_t n_bytes)
{
    unsigned char block[64] = {0};
    struct sti_sha256 sha;

    if (n_bytes > sizeof(block)) {
        sti_sha256_init(&sha);
        sti_sha256_add(&sha, key, n_bytes);
        sti_sha256_end(&sha, block);
    } else if (n_bytes > 0) {
        memcpy(block, key, n_bytes);
    }
    for (uint32_t i = 0; i < sizeof(block); i++)
        block[i] ^= 0x36;
    sti_sha256_init(&hmac->inner);
    sti_sha256_add(&hmac->inner, block, sizeof(block));
    for (uint32_t i = 0; i < sizeof(block); i++)
        block[i] ^= 0x36 ^ 0x5c;
    sti_sha256_init(&hmac->outer);
    sti_sha256_add(&hmac->outer, block, sizeof(block));
}

void
sti_hmac_begin(const struct sti_hmac *hmac, struct sti_sha256 *sha)
{
    *sha = hmac->inner;
}

void
sti_hmac_end(const struct sti_hmac *hmac, struct sti_sha256 *sha,
             unsigned char digest[STI_SHA256_BYTES])
{
    sti_sha256_end(sha, digest);
    *sha = hmac->outer;
    sti_sha256_add(sha, digest, STI_SHA256_BYTES);
    sti_sha256_end(sha, digest);
}

bool
sti_bytes_equal(const void *a, const void *b, size_t n_bytes)
{
    const unsigned char *left = a, *right = b;
    unsigned char differ = 0;

    for (size_t i = 0; i < n_bytes; i++)
        differ |= (unsigned char)(left[i] ^ right[i]);
    return differ == 0;
}
