a :: Tee(4); z :: Sched; a [0-2] => [0,] z; a [3] -> { [0] -> Null -> [0] } -> [3] z -> Discard
