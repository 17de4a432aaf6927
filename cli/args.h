/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small, strict parser of long options: --name VALUE, --name=VALUE, --flag. Every
 * option at most once, CLI_TEXTS excepted; what is not known, not a number or out of
 * range is refused in one line on stderr that names the command, the option, the value
 * and what would be allowed.
 */
#ifndef CLI_ARGS_H
#define CLI_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <stoker/types.h>

/* Exit statuses of the program. */
#define CLI_OK 0
#define CLI_FAILED 1
#define CLI_USAGE 2

enum cli_kind {
    CLI_FLAG,   /* bool *: set to true */
    CLI_U64,    /* uint64_t *: decimal digits, low .. high */
    CLI_I64,    /* int64_t *: decimal digits with an optional sign */
    CLI_SIZE,   /* uint64_t *: bytes, low .. high, with an optional suffix K, M, G, T (1024) */
    CLI_CHOICE, /* uint32_t *: a word of choices */
    CLI_TEXT,   /* const char **: as it is, borrowed from argv */
    CLI_TEXTS   /* struct cli_texts *: as it is, and may be given several times */
};

#define CLI_MAX_TEXTS 32

/* What an option that may be given several times was given, in order, borrowed from
 * argv. */
struct cli_texts {
    const char *items[CLI_MAX_TEXTS];
    size_t count;
};

/* A word and what it stands for; a list ends with a NULL word. */
struct cli_choice {
    const char *word;
    uint32_t value;
};

struct cli_option {
    const char *name; /* without the dashes */
    enum cli_kind kind;
    void *value; /* keeps what it holds (the default) when the option is not given */
    uint64_t low;
    uint64_t high; /* 0: no upper limit */
    const struct cli_choice *choices;
    bool *given; /* set to true when the option is given; may be NULL */
};

#define CLI_MAX_OPTIONS 64

/*
 * Reads argv[1] and on. Words that are not options go to words, in order (borrowed from
 * argv); max_words of them are allowed. "--" ends the options. n_options at most
 * CLI_MAX_OPTIONS. Returns how many words there are, or -1 when something is wrong and
 * has been said; the command then returns CLI_USAGE.
 */
int
cli_parse(int argc, char **argv, const struct cli_option *options, size_t n_options,
          const char **words, int max_words);

/* Writes a text in which a path may be, which may have any characters: those that would do
 * something to a terminal are written as "\n" or "\x1b". */
void
cli_put_text(FILE *to, const char *text);

/* Says on stderr what is wrong in a command's use ("stoker COMMAND: ..." and where help
 * is). Returns CLI_USAGE. */
int
cli_usage_error(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Says on stderr what failed. Returns CLI_FAILED. */
int
cli_error(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));

/*
 * Says on stderr what the library refused: "what: path: message (code)"; what may be NULL. An
 * -EINVAL that is of no path is of an option, and so of the command line: returns
 * CLI_USAGE after saying where help is, else CLI_FAILED.
 */
int
cli_refused(const char *command, const char *what, int rc, const stk_error *err);

/* Flushes stdout. Returns CLI_OK, or CLI_FAILED after saying that it could not be
 * written. */
int
cli_finish(const char *command);

#endif
