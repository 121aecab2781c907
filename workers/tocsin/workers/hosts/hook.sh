#!/bin/sh
# What a host runs at each of its events: leaves at once where there is nothing to do, and else starts
# the command. Words of its own: the folder of sessions, and the host; then the command, of which the
# last word is the moment. Nothing of an event is read here but the id of its session, and all of it is
# taken: some hosts fail when it is left unread.
folder=$1 host=$2
shift 2
for moment; do :; done
event=$(cat)
case ${TOCSIN_SEAT-} in '' | *'$'*) exit 0 ;; esac # nobody's, or a host that fills in no variables
[ -z "${TOCSIN_TURN-}" ] || exit 0               # a turn that a worker runs gets its mail from it

case $event in
'{"session_id":"'*) session=${event#'{"session_id":"'} session=${session%%'"'*} ;;
'{"session_id": "'*) session=${event#'{"session_id": "'} session=${session%%'"'*} ;;
*) session=${CLAUDE_CODE_SESSION_ID-} ;;
esac
case $session in '' | .* | *[!A-Za-z0-9._-]*) session=unknown ;; esac
[ ${#session} -le 100 ] || session=unknown
here=$folder/$host-$session
[ -e "$here/silent" ] && [ "$moment" != start ] && exit 0

began() { # when a process began, as `Process` of lineage.py counts; nothing if it has ended
  if [ -e /proc/self/stat ]; then
    { read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 1
    set -- ${stat##*) }
    case $1 in Z | X) return 1 ;; esac
    echo "${20}"
  else
    set -- $(LC_ALL=C ps -o stat=,lstart= -p "$1" 2>/dev/null)
    case ${1-Z} in Z* | X*) return 1 ;; esac
    echo "$2$3$4$5$6"
  fi
}

runs() { # whether the process that a file names still runs, and not another one of its number
  { read -r pid since <"$here/$1"; } 2>/dev/null && [ -n "$since" ] && [ "$(began "$pid")" = "$since" ]
}

listens() { # one that was not seen to run for half a minute is frozen
  runs pid && { read -r beat <"$here/beat"; } 2>/dev/null || return 1
  case $beat in '' | *[!0-9]*) return 1 ;; esac
  [ $(($(date +%s) - beat)) -lt 30 ]
}

say() { [ -d "$here" ] && echo "$1" >"$here/state"; }

run() { # of what goes wrong from here on the host hears nothing
  printf '%s' "$event" | "$@" --folder "$folder" 2>/dev/null
}

case $moment in
prompt | tool)
  say working
  [ "$moment" = prompt ] && [ -s "$here/turn" ] && : >"$here/turn" # what was done at the ends of the last one
  listens && [ ! -e "$here/mail" ] && { [ "$moment" = tool ] || [ ! -e "$here/waking" ]; } && exit 0
  run "$@"
  ;;
stop)
  listens && [ ! -e "$here/waking" ] && [ ! -e "$here/task" ] && say idle && exit 0
  run "$@"
  ;;
wait) # one for each session: an earlier one goes, and what the listener writes wakes the host
  tries=0
  until [ -p "$here/wake" ]; do # the listener may be about to start
    [ $tries -lt 10 ] || exit 0
    tries=$((tries + 1))
    sleep 1
  done
  runs waiter && kill "$pid" 2>/dev/null
  echo "$$ $(began $$)" >"$here/waiter"
  pause=1
  while :; do
    # Opened for writing, too, for a moment: so it is opened whether or not somebody writes.
    { IFS= read -r line; } 2>/dev/null 3<>"$here/wake" <"$here/wake" 3>&- || line=
    if [ -n "$line" ]; then
      printf '%s\n' "$line" >&2
      exit 2
    fi
    sleep $pause # it has come to its end: whoever listened is gone, if nobody took its place
    [ -d "$here" ] || exit 0
    if listens; then
      pause=1
    else
      run "$@" >/dev/null
      pause=$((pause < 60 ? pause * 2 : pause))
    fi
  done
  ;;
end)
  if [ "$session" != unknown ] && runs pid; then
    kill "$pid"
  else
    run "$@"
  fi
  ;;
*)
  run "$@"
  ;;
esac
exit 0
