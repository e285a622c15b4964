//! Words, names and places: static text, so that a generated value allocates nothing.

/// English words of everyday use.
pub(super) const WORDS: &[&str] = &[
    "able", "acorn", "actor", "adapt", "agent", "airport", "album", "alpha", "amber", "anchor", "angle", "animal",
    "anthem", "apple", "apron", "arbor", "arena", "arrow", "artist", "aspen", "atlas", "attic", "autumn", "award",
    "badge", "bakery", "balcony", "bamboo", "banner", "barley", "basil", "basket", "beacon", "beaver", "bedrock",
    "bell", "berry", "bicycle", "birch", "biscuit", "blanket", "blossom", "bonus", "border", "bottle", "boulder",
    "branch", "brass", "breeze", "bridge", "bronze", "brook", "bucket", "butter", "cabin", "cable", "cactus", "camera",
    "candle", "canoe", "canvas", "canyon", "captain", "caravan", "carbon", "carpet", "castle", "cedar", "cellar",
    "chalk", "cherry", "chimney", "cider", "circle", "citrus", "clover", "cobalt", "coffee", "comet", "compass",
    "copper", "coral", "cotton", "cradle", "crater", "cricket", "crystal", "curtain", "cypress", "dahlia", "dairy",
    "dancer", "delta", "denim", "desert", "diamond", "dolphin", "donkey", "dragon", "eagle", "earth", "echo", "elbow",
    "ember", "emerald", "engine", "envelope", "estate", "fabric", "falcon", "farmer", "feather", "fern", "festival",
    "fiddle", "finch", "flame", "flannel", "forest", "fossil", "fountain", "galaxy", "gallery", "garden", "garlic",
    "ginger", "glacier", "glider", "granite", "grape", "gravel", "guitar", "hammer", "harbor", "harvest", "hazel",
    "helmet", "heron", "hickory", "hollow", "honey", "horizon", "hornet", "island", "ivory", "jacket", "jasmine",
    "jewel", "jungle", "juniper", "kettle", "kingdom", "kitchen", "kitten", "ladder", "lagoon", "lantern", "lark",
    "lattice", "laurel", "lavender", "ledger", "lemon", "lentil", "library", "lilac", "linen", "lizard", "lobster",
    "lumber", "magnet", "maple", "marble", "market", "meadow", "melon", "meteor", "mirror", "mitten", "monsoon",
    "mosaic", "mountain", "museum", "mustard", "nectar", "needle", "nickel", "nutmeg", "oasis", "ocean", "olive",
    "onion", "opal", "orange", "orbit", "orchard", "orchid", "otter", "oxygen", "oyster", "paddle", "panda", "paper",
    "parcel", "parrot", "pasture", "pebble", "pencil", "pepper", "piano", "pigeon", "pillow", "pilot", "planet",
    "plaza", "pocket", "pollen", "pond", "poplar", "prairie", "prism", "pumpkin", "quartz", "quilt", "rabbit",
    "radish", "raven", "ribbon", "river", "robin", "rocket", "saddle", "saffron", "salmon", "sandal", "satin",
    "shadow", "shelter", "signal", "silver", "spruce", "summit", "sunset", "tavern", "thistle", "thunder", "timber",
    "tulip", "tunnel", "valley", "velvet", "violet", "walnut", "willow", "winter",
];

/// Given names.
pub(super) const GIVEN_NAMES: &[&str] = &[
    "Adam", "Aisha", "Akira", "Alice", "Amara", "Ana", "Anton", "Astrid", "Beatriz", "Benjamin", "Carla", "Chen",
    "Clara", "Daniel", "Diego", "Elena", "Emil", "Emma", "Fatima", "Felix", "Freya", "Gabriel", "Grace", "Hana",
    "Hugo", "Ibrahim", "Ines", "Isaac", "Ivan", "Jonas", "Julia", "Kai", "Karim", "Kofi", "Laura", "Leila", "Liam",
    "Lin", "Lucas", "Mara", "Maria", "Mateo", "Maya", "Mei", "Mila", "Mohamed", "Nadia", "Nina", "Noah", "Nora",
    "Olga", "Omar", "Oscar", "Paula", "Priya", "Rafael", "Rosa", "Samuel", "Sofia", "Tomas", "Uma", "Victor", "Yara",
    "Zoe",
];

/// Family names.
pub(super) const FAMILY_NAMES: &[&str] = &[
    "Abe", "Adams", "Ahmed", "Almeida", "Andersen", "Bauer", "Becker", "Bianchi", "Brown", "Carter", "Castro", "Cohen",
    "Costa", "Diaz", "Dubois", "Edwards", "Eriksson", "Evans", "Fischer", "Garcia", "Gomez", "Gupta", "Haddad",
    "Hansen", "Hughes", "Ito", "Ivanov", "Jensen", "Johnson", "Kaya", "Khan", "Kim", "Kovacs", "Kumar", "Larsen", "Lee",
    "Lopez", "Martin", "Mensah", "Meyer", "Moreau", "Murphy", "Nguyen", "Nowak", "Okafor", "Patel", "Pereira",
    "Petrov", "Popescu", "Ramos", "Rossi", "Santos", "Sato", "Schmidt", "Silva", "Singh", "Smith", "Suzuki", "Tanaka",
    "Torres", "Weber", "Wilson", "Wong", "Yilmaz",
];

/// Cities.
pub(super) const CITIES: &[&str] = &[
    "Accra", "Amsterdam", "Athens", "Auckland", "Bangkok", "Barcelona", "Beirut", "Berlin", "Bogota", "Boston",
    "Brisbane", "Brussels", "Budapest", "Cairo", "Cape Town", "Chennai", "Chicago", "Copenhagen", "Dakar", "Dublin",
    "Geneva", "Hanoi", "Helsinki", "Istanbul", "Jakarta", "Kyoto", "Lagos", "Lima", "Lisbon", "London", "Lyon",
    "Madrid", "Melbourne", "Montreal", "Mumbai", "Nairobi", "Oslo", "Prague", "Quito", "Rome", "Santiago", "Seoul",
    "Seattle", "Singapore", "Tallinn", "Toronto", "Vienna", "Warsaw",
];

/// Countries.
pub(super) const COUNTRIES: &[&str] = &[
    "Argentina", "Australia", "Austria", "Belgium", "Brazil", "Canada", "Chile", "Colombia", "Denmark", "Egypt",
    "Estonia", "Finland", "France", "Germany", "Ghana", "Greece", "India", "Indonesia", "Ireland", "Italy", "Japan",
    "Kenya", "Mexico", "Nigeria", "Norway", "Peru", "Poland", "Portugal", "Senegal", "Spain", "Sweden", "Vietnam",
];
