"""Will this flight arrive late?  Features that are known when the flight is scheduled, and the label.

Nothing that is known only later (departure, time in the air) goes in, and neither does the plane: the splits put all
flights of a plane on one side, so the model is tested on planes that it has never seen.
"""

import tensorflow as tf
import tensorflow_transform as tft

LATE_MINUTES = 15  # a flight counts as late from more than this
ROUTE_BUCKETS = 512
CARRIER_HOUR_BUCKETS = 256


def preprocessing_fn(inputs):
    """Raw columns in, one dense value a flight out; all features are scalars."""
    minute_of_day = inputs["hour"] * 60 + inputs["minute"]
    return {
        # Numbers.  Distances are spread over two orders of magnitude: the log makes them fit for a z-score.
        "distance_z": tft.scale_to_z_score(tf.math.log1p(tf.cast(inputs["distance"], tf.float32))),
        "planned_minutes_z": tft.scale_to_z_score(_planned_minutes(inputs)),
        "day_of_year_01": tft.scale_to_0_1((inputs["month"] - 1) * 31 + inputs["day"]),
        # Buckets with equal numbers of flights.
        "departure_bucket": tft.bucketize(minute_of_day, num_buckets=8),
        "weekday": _weekday(inputs["year"], inputs["month"], inputs["day"]),
        # Vocabularies; one index more for what training has not seen.
        "carrier": tft.compute_and_apply_vocabulary(inputs["carrier"], vocab_filename="carrier", num_oov_buckets=1),
        "origin": tft.compute_and_apply_vocabulary(inputs["origin"], vocab_filename="origin", num_oov_buckets=1),
        "dest": tft.compute_and_apply_vocabulary(
            inputs["dest"], vocab_filename="dest", frequency_threshold=10, num_oov_buckets=1
        ),
        # Crosses, hashed: too many pairs for a vocabulary.
        "route": tft.hash_strings(_cross(inputs["origin"], inputs["dest"]), ROUTE_BUCKETS),
        "carrier_hour": tft.hash_strings(
            _cross(inputs["carrier"], tf.strings.as_string(inputs["hour"])), CARRIER_HOUR_BUCKETS
        ),
        "late": _late(inputs["arr_delay"]),
    }


def _late(arr_delay):
    """1 for flights that came in late, and for those that never came in (cancelled or diverted: no arr_delay)."""
    return tf.cast(_fill_missing(arr_delay, LATE_MINUTES + 1) > LATE_MINUTES, tf.int64)


def _fill_missing(values, default):
    """A column that may be missing arrives sparse: make it dense, with the default where it is missing."""
    if not isinstance(values, tf.SparseTensor):
        return values
    one_a_row = tf.SparseTensor(values.indices, values.values, [values.dense_shape[0], 1])
    return tf.squeeze(tf.sparse.to_dense(one_a_row, default_value=tf.cast(default, values.dtype)), axis=1)


def _planned_minutes(inputs):
    """From departure to arrival as scheduled, both HHMM in local time; after midnight it is the next day."""
    departure = inputs["hour"] * 60 + inputs["minute"]
    arrival = inputs["sched_arr_time"] // 100 * 60 + inputs["sched_arr_time"] % 100
    return tf.math.floormod(arrival - departure, 24 * 60)


def _weekday(year, month, day):
    """0 for Sunday to 6 for Saturday (Sakamoto's method)."""
    offsets = tf.gather(tf.constant([0, 3, 2, 5, 0, 3, 5, 1, 4, 6, 2, 4], tf.int64), month - 1)
    year -= tf.cast(month < 3, tf.int64)  # leap days come after February
    return (year + year // 4 - year // 100 + year // 400 + offsets + day) % 7


def _cross(left, right):
    return tf.strings.join([left, right], separator="_x_")
