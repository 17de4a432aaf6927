/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 and HMAC against the vectors of FIPS 180-4 and RFC 4231. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/sha256.h"

static void
digest_is(const unsigned char digest[STI_SHA256_BYTES], const char *expected)
{
    char hex[2 * STI_SHA256_BYTES + 1];

    for (int i = 0; i < STI_SHA256_BYTES; i++)
        (void)snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    assert_string_equal(hex, expected);
}

static void
test_digest(void **state)
{
    static const char two_blocks[] = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    unsigned char digest[STI_SHA256_BYTES];
    struct sti_sha256 sha;

    (void)state;
    sti_sha256_init(&sha);
    sti_sha256_end(&sha, digest);
    digest_is(digest, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    sti_sha256_init(&sha);
    for (size_t i = 0; i < sizeof(two_blocks) - 1; i++)
        sti_sha256_add(&sha, two_blocks + i, 1);
    sti_sha256_end(&sha, digest);
    digest_is(digest, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

static void
hmac_is(const void *key, size_t n_key, const char *text, const char *expected)
{
    unsigned char digest[STI_SHA256_BYTES];
    struct sti_hmac hmac;
    struct sti_sha256 sha;

    sti_hmac_init(&hmac, key, n_key);
    for (int again = 0; again < 2; again++) { /* a key is not used up */
        sti_hmac_begin(&hmac, &sha);
        sti_sha256_add(&sha, text, strlen(text));
        sti_hmac_end(&hmac, &sha, digest);
        digest_is(digest, expected);
    }
}

static void
test_hmac(void **state)
{
    unsigned char key[131];

    (void)state;
    memset(key, 0x0b, 20);
    hmac_is(key, 20, "Hi There",
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    hmac_is("Jefe", 4, "what do ya want for nothing?",
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    memset(key, 0xaa, sizeof(key));
    hmac_is(key, sizeof(key), "Test Using Larger Than Block-Size Key - Hash Key First",
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
    hmac_is("", 0, "", "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
}

static void
test_equal(void **state)
{
    (void)state;
    assert_true(sti_bytes_equal("abcd", "abcd", 4));
    assert_false(sti_bytes_equal("abcd", "abce", 4));
    assert_false(sti_bytes_equal("abcd", "bbcd", 4));
    assert_true(sti_bytes_equal("abcd", "abce", 3));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_digest),
        cmocka_unit_test(test_hmac),
        cmocka_unit_test(test_equal),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
