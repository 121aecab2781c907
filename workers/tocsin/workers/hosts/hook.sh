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
*) session=${CLAUDE_CODE_SESSION_ID-} ;;
esac
case $session in '' | .* | *[!A-Za-z0-9._-]*) session=unknown ;; esac
here=$folder/$host-$session
[ -e "$here/silent" ] && [ "$moment" != start ] && exit 0

listens() { { read -r pid <"$here/pid"; } 2>/dev/null && kill -0 "$pid" 2>/dev/null; }

say() { [ -d "$here" ] && echo "$1" >"$here/state"; }

run() { # of what goes wrong from here on the host hears nothing
  printf '%s' "$event" | "$@" --folder "$folder" 2>/dev/null
  exit 0
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
  until listens; do # it may be about to start
    [ $tries -lt 10 ] || exit 0
    tries=$((tries + 1))
    sleep 1
  done
  { read -r earlier <"$here/waiter"; } 2>/dev/null && kill "$earlier" 2>/dev/null
  echo $$ >"$here/waiter" && exec <"$here/wake" || exit 0
  text=
  while IFS= read -r line; do
    text="$text$line
"
  done
  [ -n "$text" ] || exit 0
  printf '%s' "$text" >&2
  exit 2
  ;;
end)
  [ "$session" = unknown ] && run "$@"
  listens && kill "$pid"
  exit 0
  ;;
*)
  run "$@"
  ;;
esac
