/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The head of a message, byte by byte. Heads without bodies that go to one peer go several at a
 * time, one behind the other in up to STI_HEAD_MAX bytes. A head ends in a tag under the job's
 * session key, so that what a stranger or another job sends is told from what a rank has sent.
 * All numbers are little-endian.
 *
 *    0  magic 53 54 4b 4d      4  version (u16)     6  kind (u8)    7  flags (u8)
 *    8  from (u32)            12  to (u32)         16  incarnation of the sender (u64)
 *   24  id of the request (u64)                    32  n_bytes: room, or of the body (u64)
 *   40  code (i32)            44  CRC-32C (u32)    48  verb (u16)  50  n_small (u16)
 *   52  zero (u32)            56  small            ..  tag (16 bytes)
 */
#ifndef STI_COMM_WIRE_H
#define STI_COMM_WIRE_H

#include <stddef.h>
#include <stdint.h>

#include "comm/comm.h"
#include "comm/mac.h"

#define STI_WIRE_VERSION 2u
#define STI_WIRE_FIXED 56u
#define STI_WIRE_TAG 16u
#define STI_HEAD_MAX (STI_WIRE_FIXED + STI_COMM_SMALL_MAX + STI_WIRE_TAG)

enum sti_wire_kind {
    STI_WIRE_REQUEST = 1,
    STI_WIRE_PROMISE,
    STI_WIRE_ANSWER,
    STI_WIRE_NOTE,
    STI_WIRE_ABORT,
    STI_WIRE_TOOK, /* answers that lay at their sender: ids of STI_WIRE_ID_BYTES in small */
    STI_WIRE_GONE, /* memory that was lent is its owner's again: its token in small */
    STI_WIRE_KINDS
};

#define STI_WIRE_HAS_CRC 1u
#define STI_WIRE_REFUSED 2u /* an answer: code is why the comm did not take the request */
#define STI_WIRE_LIES 4u    /* an answer: its bytes lie at the sender, small says where */
#define STI_WIRE_MAY_LIE 8u /* a request: its answer may */
#define STI_WIRE_FLAGS 15u
#define STI_WIRE_ID_BYTES 8u

struct sti_wire {
    enum sti_wire_kind kind;
    uint32_t flags;
    uint32_t from;
    uint32_t to;
    uint64_t incarnation;
    uint64_t id;
    uint64_t n_bytes;
    int32_t code;
    uint32_t crc;
    uint32_t verb;
    uint32_t n_small;
    const void *small; /* decode: within the bytes given */
};

/* Writes a head into room for STI_HEAD_MAX and returns its length. */
uint32_t
sti_wire_encode(const struct sti_wire *wire, const struct hmac_sha256_ctx *key,
                unsigned char *bytes);

/*
 * Reads a head that may be anything. Errors: -EBADMSG malformed, STK_E_VERSION, -EACCES
 * made without the key.
 */
int
sti_wire_decode(struct sti_wire *ret_wire, const struct hmac_sha256_ctx *key, const void *bytes,
                size_t n_bytes);

/* The length of the first of several heads, one behind the other; 0: there is no whole one. */
size_t
sti_wire_first(const void *bytes, size_t n_bytes);

/* Numbers in bytes, for what else is sent. */
void
sti_wire_put(unsigned char *bytes, uint64_t value, uint32_t n_bytes);
uint64_t
sti_wire_get(const unsigned char *bytes, uint32_t n_bytes);

#endif
