/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tar. A header is a block of 512 bytes with a checksum; the member's data follows,
 * padded to blocks. What does not fit into a header comes before it in members of its
 * own: pax records (types x and g) or a GNU long name (L).
 *
 *       0 100  name                       157 100  name of the linked file
 *     100   8  mode                       257   6  "ustar\0" (pax, ustar) or "ustar " (GNU)
 *     108  16  uid, gid                   265  80  user, group, device numbers
 *     124  12  size, octal or base 256    345 155  "ustar\0" only: what comes before name
 *     136  12  mtime
 *     148   8  checksum                   The checksum is the sum of all bytes of the block,
 *     156   1  type                       itself counted as blanks.
 *
 * Nothing in an archive is trusted. Invariant: a member that is returned lies within the
 * archive, and the offset only ever grows. Names are labels: none of them is ever opened.
 */
#include "format/tar.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"

#define BLOCK STI_TAR_BLOCK_BYTES

enum {
    AT_NAME = 0,
    AT_SIZE = 124,
    AT_CHECKSUM = 148,
    AT_TYPE = 156,
    AT_MAGIC = 257,
    AT_PREFIX = 345
};
enum { NAME_BYTES = 100, SIZE_BYTES = 12, CHECKSUM_BYTES = 8, PREFIX_BYTES = 155 };

typedef unsigned long long ull;

void
sti_tar_init(struct sti_tar *tar, uint64_t n_bytes, const char *shown)
{
    memset(tar, 0, sizeof(*tar));
    tar->n_bytes = n_bytes;
    tar->shown = shown;
}

static int
refuse(const struct sti_tar *tar, const char *what, stk_error *err)
{
    return sti_error_set_path(err, -EINVAL, tar->shown, "the header at offset %llu %s",
                              (ull)tar->offset, what);
}

/* ---- numbers ----------------------------------------------------------------------- */

/* Base 256: the first byte is 0x80, the others are the number; 0xff would be a negative
 * one. */
static bool
parse_base_256(const unsigned char *at, size_t n_bytes, uint64_t *ret_value)
{
    uint64_t value = 0;

    if (at[0] != 0x80)
        return false;
    for (size_t i = 1; i < n_bytes; i++) {
        if (value > (uint64_t)INT64_MAX >> 8)
            return false;
        value = value << 8 | at[i];
    }
    *ret_value = value;
    return true;
}

/* Octal digits, blanks before them, blanks or NULs behind. Nothing at all is 0. */
static bool
parse_octal(const unsigned char *at, size_t n_bytes, uint64_t *ret_value)
{
    uint64_t value = 0;
    size_t i = 0;

    while (i < n_bytes && at[i] == ' ')
        i++;
    for (; i < n_bytes && at[i] >= '0' && at[i] <= '7'; i++)
        value = value << 3 | (uint64_t)(at[i] - '0'); /* 12 digits at most: 36 bits */
    for (; i < n_bytes; i++)
        if (at[i] != ' ' && at[i] != '\0')
            return false;
    *ret_value = value;
    return true;
}

static bool
parse_number(const unsigned char *at, size_t n_bytes, uint64_t *ret_value)
{
    if (at[0] & 0x80)
        return parse_base_256(at, n_bytes, ret_value);
    return parse_octal(at, n_bytes, ret_value);
}

static bool
parse_decimal(const char *at, size_t n_bytes, uint64_t *ret_value)
{
    uint64_t value = 0;

    if (n_bytes == 0)
        return false;
    for (size_t i = 0; i < n_bytes; i++) {
        if (at[i] < '0' || at[i] > '9' || value > (uint64_t)INT64_MAX / 10 - 1)
            return false;
        value = value * 10 + (uint64_t)(at[i] - '0');
    }
    *ret_value = value;
    return true;
}

/* Some old programs summed signed bytes: each of those from 128 on then counts 256
 * less. */
static bool
has_checksum(const unsigned char *header)
{
    uint32_t sum = 0, n_high = 0;
    uint64_t wanted;

    if (!parse_octal(header + AT_CHECKSUM, CHECKSUM_BYTES, &wanted))
        return false;
    for (size_t i = 0; i < BLOCK; i++) {
        sum += header[i];
        n_high += header[i] >> 7;
    }
    for (size_t i = AT_CHECKSUM; i < AT_CHECKSUM + CHECKSUM_BYTES; i++)
        sum += (uint32_t)' ' - header[i]; /* its own are digits and blanks, as was checked */
    return wanted == sum || (int64_t)wanted == (int64_t)sum - 256 * (int64_t)n_high;
}

/* ---- what is no archive ------------------------------------------------------------ */

struct compression {
    const char *magic;
    size_t magic_bytes;
    const char *command;
};

static const struct compression compressions[] = {
    {"\x1f\x8b", 2, "gunzip -k FILE"},
    {"\x28\xb5\x2f\xfd", 4, "zstd -d FILE"},
    {"\xfd"
     "7zXZ",
     5, "xz -dk FILE"},
    {"BZh", 3, "bunzip2 -k FILE"},
    {"\x04\x22\x4d\x18", 4, "lz4 -d FILE"},
    {"PK\x03\x04", 4, "unzip FILE, and tar -cf the files"},
};

static int
refuse_header(const struct sti_tar *tar, const unsigned char *header, stk_error *err)
{
    if (tar->offset > 0)
        return refuse(tar, "is damaged: its checksum is wrong", err);
    for (size_t i = 0; i < sizeof(compressions) / sizeof(compressions[0]); i++)
        if (memcmp(header, compressions[i].magic, compressions[i].magic_bytes) == 0)
            return sti_error_set_path(err, -EINVAL, tar->shown,
                                      "the archive is compressed, so its samples cannot be read "
                                      "one by one; run: %s",
                                      compressions[i].command);
    return sti_error_set_path(err, -EINVAL, tar->shown,
                              "no tar archive: the first block is no header");
}

static int
refuse_sparse(const struct sti_tar *tar, stk_error *err)
{
    return refuse(tar,
                  "is of a sparse file, whose bytes do not lie together; unpack the archive and "
                  "run tar without --sparse",
                  err);
}

/* ---- extended headers -------------------------------------------------------------- */

static int
take_path(struct sti_tar *tar, const char *path, size_t n_bytes, stk_error *err)
{
    if (n_bytes >= sizeof(tar->path))
        return refuse(tar, "has a name of 4096 bytes or more", err);
    if (memchr(path, '\0', n_bytes))
        return refuse(tar, "has a name with a NUL in it", err);
    memcpy(tar->path, path, n_bytes);
    tar->path[n_bytes] = '\0';
    tar->has_path = true;
    return 0;
}

static bool
is_key(const char *key, size_t key_bytes, const char *name)
{
    return strlen(name) == key_bytes && memcmp(key, name, key_bytes) == 0;
}

/* One "key=value" of pax. */
static int
take_record(struct sti_tar *tar, const char *key, size_t n_bytes, bool is_global, stk_error *err)
{
    const char *equals = memchr(key, '=', n_bytes);

    if (!equals)
        return refuse(tar, "has a pax record without a value", err);
    size_t key_bytes = (size_t)(equals - key);
    const char *value = equals + 1;
    size_t value_bytes = n_bytes - key_bytes - 1;
    bool is_path = is_key(key, key_bytes, "path"), is_size = is_key(key, key_bytes, "size");
    if (key_bytes >= 11 && memcmp(key, "GNU.sparse.", 11) == 0)
        return refuse_sparse(tar, err);
    if (is_global && (is_path || is_size))
        return refuse(tar, "gives all files one name or one size", err);
    if (is_path)
        return take_path(tar, value, value_bytes, err);
    if (is_size) {
        if (!parse_decimal(value, value_bytes, &tar->size))
            return refuse(tar, "has a pax size that is no number of bytes", err);
        tar->has_size = true;
    }
    return 0;
}

/* Records "length key=value\n", the length counting all of it. */
static int
take_records(struct sti_tar *tar, const char *at, uint64_t n_bytes, bool is_global, stk_error *err)
{
    while (n_bytes > 0) {
        size_t digits = 0;
        uint64_t length;

        while (digits < n_bytes && digits < 20 && at[digits] >= '0' && at[digits] <= '9')
            digits++;
        if (digits == 0 && at[0] == '\0') /* padding that was counted as records */
            return 0;
        if (digits == n_bytes || at[digits] != ' ' || !parse_decimal(at, digits, &length) ||
            length < digits + 2 || length > n_bytes || at[length - 1] != '\n')
            return refuse(tar, "has a damaged pax record", err);
        int rc = take_record(tar, at + digits + 1, length - digits - 2, is_global, err);
        if (rc < 0)
            return rc;
        at += length;
        n_bytes -= length;
    }
    return 0;
}

/* ---- members ----------------------------------------------------------------------- */

/* The name in the header itself. */
static void
take_header_name(struct sti_tar *tar, const unsigned char *header)
{
    const char *name = (const char *)header + AT_NAME;
    const char *prefix = (const char *)header + AT_PREFIX;
    size_t name_bytes = strnlen(name, NAME_BYTES);
    size_t prefix_bytes = 0;

    if (memcmp(header + AT_MAGIC, "ustar", 6) == 0)
        prefix_bytes = strnlen(prefix, PREFIX_BYTES);
    memcpy(tar->path, prefix, prefix_bytes);
    if (prefix_bytes > 0)
        tar->path[prefix_bytes++] = '/';
    memcpy(tar->path + prefix_bytes, name, name_bytes);
    tar->path[prefix_bytes + name_bytes] = '\0';
}

/* Whether the window has n_bytes from the next header on; asks for them where not. */
static bool
has_seen(struct sti_tar *tar, const struct sti_tar_window *window, uint64_t n_bytes)
{
    tar->need_bytes = n_bytes;
    return tar->offset >= window->offset && tar->offset - window->offset <= window->n_bytes &&
           n_bytes <= window->n_bytes - (tar->offset - window->offset);
}

static uint64_t
padded(uint64_t n_bytes)
{
    return (n_bytes + BLOCK - 1) / BLOCK * BLOCK; /* at most INT64_MAX before: no overflow */
}

/* Goes behind a member; the padding of the last one may be missing. */
static void
pass(struct sti_tar *tar, uint64_t n_bytes)
{
    uint64_t left = tar->n_bytes - tar->offset - BLOCK;

    tar->offset += BLOCK + (padded(n_bytes) < left ? padded(n_bytes) : left);
}

/* A header that only says something about the next one. */
static int
take_extension(struct sti_tar *tar, const struct sti_tar_window *window, char type,
               uint64_t n_bytes, stk_error *err)
{
    int rc;

    if (n_bytes > STI_TAR_NEED_MAX - BLOCK)
        return refuse(tar, "is an extended one of more than 1 MiB", err);
    if (!has_seen(tar, window, BLOCK + n_bytes))
        return STI_TAR_NEED;
    const char *data = (const char *)window->bytes + (tar->offset - window->offset) + BLOCK;
    if (type == 'L')
        rc = take_path(tar, data, strnlen(data, n_bytes), err);
    else if (type == 'K')
        rc = 0; /* the long name of a link, which is refused when it comes */
    else
        rc = take_records(tar, data, n_bytes, type == 'g', err);
    if (rc == 0)
        pass(tar, n_bytes);
    return rc;
}

/* What a type is. */
enum treatment { REGULAR, EXTENSION, EMPTY, SKIPPED, LINK, SPARSE, CONTINUED, STRANGE };

static enum treatment
treatment_of(char type)
{
    switch (type) {
    case '\0':
    case '0':
    case '7':
        return REGULAR;
    case 'x':
    case 'X':
    case 'g':
    case 'L':
    case 'K':
        return EXTENSION;
    case '3': /* devices, */
    case '4':
    case '5': /* a directory, */
    case '6': /* a FIFO, */
    case 'V': /* the archive's label: none has data */
        return EMPTY;
    case 'D': /* GNU: a directory with a list of its names */
        return SKIPPED;
    case '1':
    case '2':
        return LINK;
    case 'S':
        return SPARSE;
    case 'M':
        return CONTINUED;
    default:
        return STRANGE;
    }
}

static int
refuse_type(const struct sti_tar *tar, enum treatment treatment, char type, stk_error *err)
{
    if (treatment == SPARSE)
        return refuse_sparse(tar, err);
    if (treatment == CONTINUED)
        return refuse(tar, "continues a file of another archive (tar --multi-volume)", err);
    if (treatment == LINK)
        return refuse(tar,
                      "is of a link, so a file is missing here; make the archive with: tar "
                      "--dereference --hard-dereference",
                      err);
    return sti_error_set_path(err, -EINVAL, tar->shown,
                              "the header at offset %llu is of the unknown type 0x%02x",
                              (ull)tar->offset, (unsigned)(unsigned char)type);
}

/* Names and sizes of extended headers hold for one member. */
static void
forget_extensions(struct sti_tar *tar)
{
    tar->has_path = false;
    tar->has_size = false;
}

static int
take_member(struct sti_tar *tar, const struct sti_tar_window *window, uint64_t n_bytes,
            struct sti_tar_member *ret_member)
{
    const unsigned char *header = window->bytes + (tar->offset - window->offset);
    bool is_short = n_bytes <= STI_TAR_SHORT_BYTES;

    if (is_short && !has_seen(tar, window, BLOCK + n_bytes))
        return STI_TAR_NEED;
    if (!tar->has_path)
        take_header_name(tar, header);
    *ret_member = (struct sti_tar_member){.path = tar->path,
                                          .header_offset = tar->offset,
                                          .offset = tar->offset + BLOCK,
                                          .n_bytes = n_bytes,
                                          .data = is_short ? header + BLOCK : NULL};
    pass(tar, n_bytes);
    forget_extensions(tar);
    return STI_TAR_MEMBER;
}

/* Deals with the header at the offset. Returns 0 to go on with the next one. */
static int
take_header(struct sti_tar *tar, const struct sti_tar_window *window,
            struct sti_tar_member *ret_member, stk_error *err)
{
    const unsigned char *header = window->bytes + (tar->offset - window->offset);
    char type = (char)header[AT_TYPE];
    enum treatment treatment = treatment_of(type);
    uint64_t n_bytes;

    if (!has_checksum(header))
        return refuse_header(tar, header, err);
    if (!parse_number(header + AT_SIZE, SIZE_BYTES, &n_bytes))
        return refuse(tar, "has a size that is negative or no number", err);
    if (treatment >= LINK)
        return refuse_type(tar, treatment, type, err);
    if (treatment == EMPTY)
        n_bytes = 0;
    else if (treatment != EXTENSION && tar->has_size)
        n_bytes = tar->size;
    if (n_bytes > tar->n_bytes - tar->offset - BLOCK)
        return sti_error_set_path(err, -EINVAL, tar->shown,
                                  "the archive is cut off: the file whose header is at offset "
                                  "%llu should have %llu bytes, %llu follow",
                                  (ull)tar->offset, (ull)n_bytes,
                                  (ull)(tar->n_bytes - tar->offset - BLOCK));
    if (treatment == EXTENSION)
        return take_extension(tar, window, type, n_bytes, err);
    if (treatment == REGULAR)
        return take_member(tar, window, n_bytes, ret_member);
    pass(tar, n_bytes);
    forget_extensions(tar);
    return 0;
}

static bool
is_zero(const unsigned char *block)
{
    return block[0] == 0 && memcmp(block, block + 1, BLOCK - 1) == 0;
}

int
sti_tar_next(struct sti_tar *tar, const struct sti_tar_window *window,
             struct sti_tar_member *ret_member, stk_error *err)
{
    int rc = 0;

    while (rc == 0) {
        if (tar->offset == tar->n_bytes && tar->offset > 0)
            return STI_TAR_END; /* some writers leave the zeros at the end out */
        if (tar->n_bytes - tar->offset < BLOCK)
            return sti_error_set_path(err, -EINVAL, tar->shown,
                                      "the archive is cut off: %llu bytes at offset %llu are less "
                                      "than a header",
                                      (ull)(tar->n_bytes - tar->offset), (ull)tar->offset);
        if (!has_seen(tar, window, BLOCK))
            return STI_TAR_NEED;
        if (is_zero(window->bytes + (tar->offset - window->offset)))
            return STI_TAR_END;
        rc = take_header(tar, window, ret_member, err);
    }
    return rc;
}

size_t
sti_tar_split(const char *path, const char **ret_field)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    const char *dot = strchr(name, '.');
    size_t n = strlen(name);

    if (!dot || dot == name)
        return 0;
    if (n >= 4 && memcmp(name, "__", 2) == 0 && memcmp(name + n - 2, "__", 2) == 0)
        return 0;
    *ret_field = dot + 1;
    return (size_t)(dot - path);
}
