# library.mk - liblanyard: what predicts, for programs of others and for python/. Only lanyard.h's names are seen.

LIB_FOLDERS := runtime runtime/config runtime/wire runtime/files runtime/numbers edge_worker/device \
  edge_worker/model edge_worker/predict
LIB_SOURCES := $(sort $(wildcard $(addsuffix /*.c,$(LIB_FOLDERS)) ps_lite/ps_store.c ps_lite/ps_table.c ps_lite/ps_model_file.c \
  $(addprefix runtime/stream/rt_,batch.c columns.c criteo.c event_id.c json_cell.c json_lines.c keyset.c libsvm.c line.c parser.c \
  scale.c value_names.c synthetic.c synthetic_shape.c table.c tables.c)))
LIB_OBJECTS := $(LIB_SOURCES:%.c=$(DIR)/%.o)
# With a sanitizer only programs that are built with it could use them.
LIBRARIES := $(if $(SANITIZER),,build/liblanyard.so build/liblanyard.a)
LIB_NEEDS := -lcjson -lxxhash -lzstd -lpthread -ldl -lm
LIB_ABI := $(shell awk '/^.define LANYARD_ABI/ { print $$3 }' edge_worker/predict/lanyard.h)

library: $(LIBRARIES) ## build liblanyard, shared and static: a model's predictions in other programs
build/liblanyard.so: $(LIB_OBJECTS)
	@echo "link $@"
	$(Q)$(CC) $(CFLAGS) -shared -Wl,-soname,liblanyard.so.$(LIB_ABI) -Wl,--gc-sections -Wl,-z,defs $^ $(LIB_NEEDS) -o $@
# One object whose other names are its own. The compiler knows the tools of the machine that it compiles for.
build/liblanyard.a: $(LIB_OBJECTS)
	@echo "link $@"
	$(Q)$(CC) -r -nostdlib $^ -o $(DIR)/liblanyard.o
	$(Q)$$($(CC) -print-prog-name=objcopy) --localize-hidden $(DIR)/liblanyard.o
	@rm -f $@
	$(Q)$$($(CC) -print-prog-name=ar) rcs $@ $(DIR)/liblanyard.o
# Compiled once, for the program too.
$(LIB_OBJECTS): private LIB = $(if $(SANITIZER),,-fPIC -fvisibility=hidden -ffunction-sections -fdata-sections)
