# trainer/data/: samples to batches, token files and tables.
libtrainer_a_SOURCES += \
	trainer/data/batch.h \
	trainer/data/dataset.c trainer/data/dataset.h \
	trainer/data/dataset_private.h \
	trainer/data/dataset_table.c \
	trainer/data/dataset_tokens.c \
	trainer/data/feed.c trainer/data/feed.h \
	trainer/data/file_list.c trainer/data/file_list.h \
	trainer/data/mapping.c trainer/data/mapping.h \
	trainer/data/npy.c trainer/data/npy.h \
	trainer/data/prefetch.c \
	trainer/data/token_file.c trainer/data/token_file.h \
	trainer/data/token_shards.c trainer/data/token_shards.h \
	trainer/data/token_writer.c trainer/data/token_writer.h
# End of data.mk
