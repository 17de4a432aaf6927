# SPDX-License-Identifier: Apache-2.0
#
#   make demo     trains a real model from emulated slow storage and prints the figures
#   make demo-ranks  four ranks on two machines serve each other's samples
#   make test     builds and runs the unit tests
#   make build    builds everything under build/
#   make check    formatting, layering, style: seconds
#   make install  installs (PREFIX=, DESTDIR=); without PREFIX where build/ was set up for, else
#                 in /usr/local
#   make clean    removes build/
#
# What is missing is installed with apt-get first, where it can be (tools/setup.sh).

BUILD ?= build
PREFIX ?=
DESTDIR ?=
MESON ?= meson

# For meson test: -t 4 gives the tests four times as long.
TEST_ARGS ?=

.NOTPARALLEL:
.PHONY: demo demo-ranks test build check install clean
.DEFAULT_GOAL := build

build: .setup-build
	@test -f $(BUILD)/build.ninja || $(MESON) setup $(BUILD) --prefix=$(or $(PREFIX),/usr/local)
	$(MESON) compile -C $(BUILD)

demo: .setup-demo build
	examples/demo.sh $(BUILD)

demo-ranks: .setup-ranks build
	examples/demo_ranks.sh $(BUILD)

test: .setup-test build
	rm -f $(BUILD)/meson-logs/testlog.json
	-$(MESON) test -C $(BUILD) --print-errorlogs $(TEST_ARGS)
	@python3 tools/summary.py test=$(BUILD)/meson-logs/testlog.json

check:
	tools/check_format.sh
	python3 tools/check_layers.py
	python3 tools/check_style.py

# Only where it differs: to set it means to configure again.
install: build
	@test -z "$(PREFIX)" || python3 tools/build_prefix.py $(BUILD) | grep -qxF "$(PREFIX)" || \
		$(MESON) configure $(BUILD) --prefix="$(PREFIX)"
	DESTDIR=$(DESTDIR) $(MESON) install -C $(BUILD)

clean:
	rm -rf $(BUILD)

.PHONY: .setup-build .setup-demo .setup-ranks .setup-test
.setup-build .setup-demo .setup-ranks .setup-test: .setup-%:
	@tools/setup.sh $*
