/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 against the examples of FIPS 180-4 and lengths around a block's end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "sha256.h"

/* The digest of a message of the letter a, added in pieces. */
static void
check_letters(size_t n_bytes, size_t piece, const char *digest)
{
    char hex[CLI_SHA256_HEX_SIZE];
    char letters[1000];
    struct cli_sha256 sha;

    memset(letters, 'a', sizeof(letters));
    cli_sha256_init(&sha);
    for (size_t done = 0; done < n_bytes; done += piece)
        cli_sha256_add(&sha, letters, n_bytes - done < piece ? n_bytes - done : piece);
    cli_sha256_hex(&sha, hex);
    assert_string_equal(hex, digest);
}

static void
test_letters(void **state)
{
    static const struct {
        size_t n_bytes;
        const char *digest;
    } cases[] = {
        {0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {1, "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"},
        {55, "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318"},
        {56, "b35439a4ac6f0948b6d6f9e3c6af0f5f590ce20f1bde7090ef7970686ec6738a"},
        {63, "7d3e74a05d7db15bce4ad9ec0658ea98e3f06eeecf16b4c6fff2da457ddc2f34"},
        {64, "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb"},
        {65, "635361c48bb9eab14198e76ea8ab7f1a41685d6ad62aa9146d301d4f17eb0ae0"},
        {119, "31eba51c313a5c08226adf18d4a359cfdfd8d2e816b13f4af952f7ea6584dcfb"},
        {120, "2f3d335432c70b580af0e8e1b3674a7c020d683aa5f73aaaedfdc55af904c21c"},
        {1000000, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        for (size_t piece = 1; piece < 1000; piece = piece * 3 + 1)
            check_letters(cases[i].n_bytes, piece, cases[i].digest);
}

static void
test_words(void **state)
{
    static const char text[] = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    char hex[CLI_SHA256_HEX_SIZE];
    struct cli_sha256 sha;

    (void)state;
    cli_sha256_init(&sha);
    cli_sha256_add(&sha, text, strlen(text));
    cli_sha256_hex(&sha, hex);
    assert_string_equal(hex, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_letters),
        cmocka_unit_test(test_words),
    };

    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
