/* SPDX-License-Identifier: Apache-2.0 */
/* A restart in the allocation (muster-run(1)): three nodes, two of them in a step, and the third a
 * spare. Rank 0 hands snapshots to the service of its node. Any two of these may come at any
 * moment: a rank dies, a node dies, a node is cut off, which may heal; and a notice. muster-run
 * hears of a rank's end from its node, and of a node's by its silence. Before a step begins again,
 * the services of its nodes commit what they hold.
 *
 * Holds: a step begins with what a service held whose node still answers; no node that answers has
 * ranks of two steps; in the end the training has finished, or the job goes back into the queue. */
#define NODES 3
#define SIZE 2  /* nodes of a step, and the least that may be left */
#define RESTARTS 1
#define STEPS 2
#define FAULTS 2

mtype = { UP, CUT, DEAD };

mtype node[NODES] = UP;
bool out[NODES];      /* left out of the job's steps */
byte runs[NODES];     /* the start whose rank is on the node, from 1; 0: none */
byte said[NODES];     /* the start whose end muster-run has heard of from there */
byte late[NODES];     /* the start whose end it hears of once the node answers again */
bool wants[NODES];    /* a rank of it has asked for a requeue */
byte held[NODES];     /* the step that the service holds; 0: none */
byte held_of[NODES];  /* the start that it is of */
byte owner = 0;       /* the start that has claimed the directory last */
byte durable = 0;     /* the newest checkpoint */
byte promised = 0;    /* what the next start must find */
byte began = 0;       /* the newest start */
byte faults = 0;
bool notice = false, leaving = false, finished = false;
bool back = false;    /* the job goes back into the queue */
bool over = false;    /* muster-run has ended */

#define answers(n) (node[n] == UP)
#define lives(n, me) (runs[n] == me && node[n] != DEAD)

/* A node tells muster-run that its rank has ended, and the plugin asks for a requeue where the rank
 * wanted it: of the newest start alone. */
inline hear(n)
{
	said[n] = late[n];
	leaving = leaving || (wants[n] && late[n] == began);
	back = back || (wants[n] && late[n] == began);
	late[n] = 0; wants[n] = false
}

inline tell(n, me, asks)
{
	late[n] = me; wants[n] = asks; runs[n] = 0;
	if :: answers(n) -> hear(n) :: else fi
}

proctype rank(byte n, me; bool first)
{
	byte at = 0;

	if
	:: !first
	:: first ->
		atomic {
			if
			:: lives(n, me) && owner < me ->
				owner = me;
				at = durable;
				assert(at >= promised)
			:: else -> goto gone
			fi
		}
	fi;
end:	do
	:: atomic { !lives(n, me) -> goto gone }
	:: atomic { lives(n, me) && (finished || notice) ->
		tell(n, me, notice && !finished); goto gone }
	:: atomic { first && lives(n, me) && at < STEPS && held[n] == 0 ->
		at++; held[n] = at; held_of[n] = me }
	:: atomic { first && lives(n, me) && at == STEPS && held[n] == 0 && durable == STEPS &&
		owner == me ->
		finished = true }
	od;
gone:	skip
}

/* It commits only for the start that owns the directory. The look and the commit are one here:
 * commit.pml and owner.pml have what may come between. */
proctype service(byte n)
{
end:	do
	:: held[n] > 0 && node[n] != DEAD ->
		if
		:: atomic { owner == held_of[n] && node[n] != DEAD ->
			if :: held[n] > durable -> durable = held[n] :: else fi;
			held[n] = 0; held_of[n] = 0 }
		:: atomic { owner != held_of[n] -> held[n] = 0; held_of[n] = 0 }
		:: atomic { node[n] == DEAD -> skip }
		fi
	od
}

proctype fault(byte n)
{
end:	do
	:: atomic { faults < FAULTS && node[n] != DEAD && runs[n] > 0 ->
		faults++; tell(n, runs[n], false) }
	:: atomic { faults < FAULTS && node[n] != DEAD ->
		faults++; node[n] = DEAD;
		runs[n] = 0; late[n] = 0; wants[n] = false; held[n] = 0; held_of[n] = 0 }
	:: atomic { faults < FAULTS && answers(n) -> faults++; node[n] = CUT }
	:: atomic { node[n] == CUT -> node[n] = UP; if :: late[n] > 0 -> hear(n) :: else fi }
	od
}

/* The nodes of a step: the first that are not left out; NODES: none. */
inline choose()
{
	d_step {
		one = NODES; two = NODES; i = 0;
		do
		:: i == NODES -> break
		:: else ->
			if
			:: !out[i] && one == NODES -> one = i
			:: !out[i] && one != NODES && two == NODES -> two = i
			:: else
			fi;
			i++
		od;
		i = 0
	}
}

/* srun tells where it can start no rank. */
inline start(n)
{
	if
	:: answers(n) -> assert(runs[n] == 0); runs[n] = began
	:: else -> said[n] = began
	fi
}

/* The end of a step on a node, which Slurm kills there; a silent one is left out. */
inline end_on(n)
{
	atomic {
		if
		:: said[n] == began -> out[n] = out[n] || !answers(n)
		:: said[n] != began && answers(n) -> runs[n] = 0; said[n] = began
		:: else -> out[n] = true
		fi
	}
}

/* The service of a node of the next step commits what it holds, as long as the node answers. */
#ifdef BROKEN
#define settled(n) true
#else
#define settled(n) (held[n] == 0)
#endif
inline settle(n)
{
	kept = (held_of[n] == owner -> held[n] : 0);
	atomic {
		(settled(n) || !answers(n));
		if
		:: settled(n) && answers(n) && kept > promised -> promised = kept
		:: else
		fi;
		kept = 0
	}
}

active proctype muster_run()
{
	byte one, two, i, kept;

	do
	:: choose();
		if
		:: two == NODES || began > RESTARTS -> back = true; break
		:: else
		fi;
		if
		:: began > 0 -> settle(one); settle(two)
		:: else
		fi;
		atomic {
			if
			:: back -> break /* Slurm starts no step of such a job */
			:: else
			fi;
			began++;
			start(one); start(two);
			run rank(one, began, true);
			run rank(two, began, false)
		}
		(said[one] == began || said[two] == began || !answers(one) || !answers(two));
		end_on(one); end_on(two);
		if
		:: finished -> break
		:: leaving -> back = true; break /* the script's end, too, asks for it */
		:: !finished && !leaving && back -> break
		:: else
		fi
	od;
	assert(finished || back);
	over = true
}

init {
	atomic {
		run service(0); run service(1); run service(2);
		run fault(0); run fault(1); run fault(2)
	}
end:	if
	:: atomic { !over -> notice = true }
	:: over
	fi
}
