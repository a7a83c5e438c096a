t :: Tee(2) => ( [0] -> Counter -> [0]; [1] -> Paint(1) -> [1] ) => d :: Discard, e :: Discard;
