# ucx.mk - messages by UCX, a plug-in that the program opens at run time. Plug-in and program carry a checksum of the
# headers that they share.

UCX := $(call HAS,ucp/api/ucp.h)
UCX_PLUGIN := $(if $(UCX),$(dir $(PROGRAM))liblanyard_ucx.so,no-ucx)
# What it needs of the runtime is linked into it once more.
UCX_PARTS := $(wildcard runtime/transport/ucx/*.c) runtime/rt_base.c runtime/rt_build.c runtime/rt_group.c runtime/rt_locale.c \
  runtime/rt_status.c runtime/rt_thread.c runtime/config/rt_address.c runtime/transport/rt_watch.c $(addprefix runtime/wire/rt_,bytes.c control.c wire.c)
UCX_HEADERS := runtime/rt_log.h runtime/rt_status.h $(addprefix runtime/transport/rt_,keys.h transport.h ucx.h watch.h) runtime/wire/rt_wire.h
UCX_ABI := -DRT_UCX_ABI=$(firstword $(shell cat $(UCX_HEADERS) | cksum))u

no-ucx:
	@echo "no ucp/api/ucp.h (tools/setup ucx): liblanyard_ucx.so is left out; network.transport ucx and mixed will not work"
$(dir $(PROGRAM))liblanyard_ucx.so: $(UCX_PARTS:%.c=$(DIR)/plugin/%.o)
	@echo "link $@"
	$(Q)$(CC) -shared $(SANITIZE) -Wl,--gc-sections $(if $(SANITIZER),,-Wl$(comma)-z$(comma)defs) $^ -lucp -lucs -lpthread -o $@
$(DIR)/plugin/runtime/transport/ucx/rt_ucx_plugin.o $(DIR)/runtime/transport/rt_ucx.o: private CFLAGS += $(UCX_ABI)
$(DIR)/plugin/runtime/transport/ucx/rt_ucx_plugin.o $(DIR)/runtime/transport/rt_ucx.o: $(UCX_HEADERS)

-include $(UCX_PARTS:%.c=$(DIR)/plugin/%.d)
