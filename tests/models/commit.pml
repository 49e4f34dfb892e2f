/* SPDX-License-Identifier: Apache-2.0 */
/* A save of one step with two writers, and the attempt that follows (doc/checkpoint-format.md, 5).
 * The first attempt's processes may live on while the second one works, as on a node that was cut
 * off, and any two processes may die at any moment.
 *
 * Holds: what is named step-S is whole, from the moment it has that name; it keeps that name once a
 * save was told to be durable; the second attempt leaves nothing of the first behind that would
 * ever become a checkpoint; no process waits for ever. */
#define PARTS 2
#define CRASHES 2
#define FOLDERS 6

/* The names that a folder may have. */
#define NONE 0
#define SAVING(token) (token)         /* .saving-step-S-TOKEN */
#define REMOVING(token) (2 + (token)) /* .removing-step-S-TOKEN */
#define STEP 5
#define NAMES 6

typedef folder {
	bool part[PARTS], manifest
}
folder folders[FOLDERS]; /* 0: none */
byte at[NAMES];          /* which folder has the name */
byte made = 0;
byte owner = 1, crashes = 0;
bool reported[6], failed[6]; /* by token and part */
bool durable = false;

#define OF(token, part) (PARTS * (token) + (part))
#define WHOLE(id) (folders[id].part[0] && folders[id].part[1])

inline maybe_die()
{
	if
	:: atomic { crashes < CRASHES -> crashes++; goto dead }
	:: skip
	fi
}

inline make(name)
{
	atomic {
		if
		:: at[name] == 0 -> assert(made + 1 < FOLDERS); made++; at[name] = made
		:: else
		fi
	}
}

/* Fails where there is no such folder, or the new name is taken. */
inline rename(from, to, ok)
{
	atomic {
		if
		:: at[from] && !at[to] -> at[to] = at[from]; at[from] = 0; ok = true
		:: else -> ok = false
		fi
	}
}

/* Files of a folder that has lost its name, one after the other. */
inline remove_files(id)
{
	folders[id].manifest = false;
	folders[id].part[0] = false;
	folders[id].part[1] = false
}

inline give_up(whose, id, ok)
{
#ifdef BROKEN
	id = at[SAVING(whose)]; /* without another name first */
	remove_files(id);
	atomic { if :: at[SAVING(whose)] == id -> at[SAVING(whose)] = 0 :: else fi }
#else
	rename(SAVING(whose), REMOVING(whose), ok);
	if
	:: ok -> id = at[REMOVING(whose)]; remove_files(id); at[REMOVING(whose)] = 0
	:: else
	fi
#endif
}

proctype writer(byte token; byte part)
{
	byte id;

	make(SAVING(token));
	maybe_die();
	id = at[SAVING(token)];
	if
	:: id == 0 -> goto dead /* it was given up meanwhile */
	:: else
	fi;
	folders[id].part[part] = false; /* leftovers of the same part */
	maybe_die();
	folders[id].part[part] = true; /* the part's file comes last, and is durable */
	maybe_die();
	if
	:: at[SAVING(token)] == id -> reported[OF(token, part)] = true; goto over
	:: else
	fi;
dead:	failed[OF(token, part)] = true;
over:	skip
}

/* From here on 5.1 is the same for the service of part 0 and for the next attempt. */
inline commit(whose, by)
{
	id = at[SAVING(whose)];
	if
	:: id && WHOLE(id) ->
		folders[id].manifest = true;
		maybe_die();
		if
		:: owner == by ->
			rename(SAVING(whose), STEP, ok);
			if
			:: ok -> maybe_die(); durable = true
			:: !ok && at[STEP] -> durable = true; give_up(whose, id, ok)
			:: else /* another process has given it up, or committed it */
			fi
		:: else -> give_up(whose, id, ok)
		fi
	:: else
	fi
}

proctype committer(byte token)
{
	byte id;
	bool ok;

	if
	:: reported[OF(token, 0)] && reported[OF(token, 1)] -> commit(token, token)
	:: failed[OF(token, 0)] || failed[OF(token, 1)] -> give_up(token, id, ok)
	fi;
dead:	skip
}

/* The next attempt: takes the directory, commits what is complete, removes what is not, and saves
 * the same step. */
proctype next_attempt()
{
	byte id;
	bool ok;

	owner = 2;
	maybe_die();
	commit(1, 2);
	maybe_die();
	give_up(1, id, ok);
	maybe_die();
	/* Its own save. What its writers do at the same time is that of the first attempt's. */
	make(SAVING(2));
	id = at[SAVING(2)];
	folders[id].part[0] = true;
	maybe_die();
	folders[id].part[1] = true;
	commit(2, 2);
dead:	skip
}

init
{
	atomic {
		run writer(1, 0);
		run writer(1, 1);
		run committer(1);
		run next_attempt()
	}
}

/* In every state. */
active proctype judge()
{
end:	do
	:: atomic { at[STEP] && !(WHOLE(at[STEP]) && folders[at[STEP]].manifest) -> assert(false) }
	:: atomic { durable && !at[STEP] -> assert(false) }
	od
}
