-- For Conductor's SQLite; statements end with ^^ because triggers hold semicolons.
--
-- What Conductor takes from _deciderQueue is a workflow to look at: whether a lease is over, say. It
-- then says when it wants to look again, but what it took comes back a minute or two after that. So
-- here it comes back by itself after three seconds; and never sooner, which is what Conductor asks
-- for once a task has run longer than one lease.

DROP TRIGGER IF EXISTS perago_look_again
^^
CREATE TRIGGER perago_look_again AFTER UPDATE OF popped ON queue_message
WHEN NEW.queue_name = '_deciderQueue' AND NEW.popped
BEGIN
  UPDATE queue_message
  SET popped = 0, deliver_on = strftime('%Y-%m-%d %H:%M:%f', 'now', '+3 seconds')
  WHERE queue_name = NEW.queue_name AND message_id = NEW.message_id;
END
^^
DROP TRIGGER IF EXISTS perago_look_later
^^
CREATE TRIGGER perago_look_later AFTER UPDATE OF offset_time_seconds ON queue_message
WHEN NEW.queue_name = '_deciderQueue'
  AND NEW.deliver_on < strftime('%Y-%m-%d %H:%M:%f', 'now', '+3 seconds')
BEGIN
  UPDATE queue_message
  SET deliver_on = strftime('%Y-%m-%d %H:%M:%f', 'now', '+3 seconds')
  WHERE queue_name = NEW.queue_name AND message_id = NEW.message_id;
END
