"""Writes the training text of the tiny model (examples/tiny.gguf): stories, simple facts, short essays and chats.

Everything here is a grammar: tables of facts, sentence templates and story plots, expanded with a seeded random
generator. The output is plain ASCII English and the same for the same seed.

    python3 tiny_corpus.py --out corpus.txt --docs 100000 --seed 1               # 36 MB, a few seconds
    python3 tiny_corpus.py --heldout tiny-heldout.txt --without corpus.txt       # 30 KB, no chats, other seeds, no
                                                                                 # document of corpus.txt

Documents are separated by a line with a single `%`. A document that begins with the line `#chat` is a conversation,
one turn a line as `Role: text`, line breaks inside a turn written as backslash-n. The others are plain text.

In templates `[a|b]` is a choice, `{x}` a field, and `a~` becomes `a` or `an`.
"""
import argparse
import random
import re

CHOICE = re.compile(r"\[([^\[\]]*)\]")


def ex(r, template, **fields):
    """Expands a template: choices from the inside out, then fields, articles and capitals."""
    while True:
        m = CHOICE.search(template)
        if not m:
            break
        template = template[:m.start()] + r.choice(m.group(1).split("|")) + template[m.end():]
    text = template.format(**fields) if fields else template
    return tidy(text)


def tidy(text):
    text = re.sub(r"\b([Aa])~ (?=([A-Za-z]))", lambda m: m.group(1) + ("n " if m.group(2) in "aeiouAEIO" else " "), text)
    text = re.sub(r"(^|[.!?] |\n)([a-z])", lambda m: m.group(1) + m.group(2).upper(), text)
    return re.sub(r"  +", " ", text).strip()


def table(text):
    return [[c.strip() for c in line.split("|")] for line in text.strip().split("\n")]


def groups(text):
    """Paragraph blocks: a first line with names, then one sentence a line."""
    return [(b.split("\n")[0], b.split("\n")[1:]) for b in text.strip().split("\n\n")]


def listing(items):
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + " and " + items[-1]


# ---------------------------------------------------------------- facts

# country | capital | continent | language | river, sea or mountain | known for | a second fact
COUNTRIES = table("""
France|Paris|Europe|French|the river Seine flows through the city|bread, cheese and wine|the Eiffel Tower stands in Paris
Germany|Berlin|Europe|German|the river Rhine flows through the country|cars, music and forests|many trains cross the country every day
Italy|Rome|Europe|Italian|the country has the shape of a boot|pasta, pizza and old ruins|the Colosseum stands in Rome
Spain|Madrid|Europe|Spanish|the country lies between an ocean and a warm sea|dancing, oranges and sunny beaches|people often eat dinner late in the evening
Portugal|Lisbon|Europe|Portuguese|the country lies on the Atlantic Ocean|sailors, cork and grilled fish|old yellow trams climb the hills of Lisbon
the United Kingdom|London|Europe|English|the river Thames flows through the city|tea, gardens and rain|a large clock tower stands beside the river in London
Ireland|Dublin|Europe|English|the land is green because it rains often|green hills, music and stories|many people there also learn the Irish language
Greece|Athens|Europe|Greek|the country has thousands of islands|olives, temples and old stories|the first Olympic games were held there
Austria|Vienna|Europe|German|the river Danube flows through the city|mountains, cakes and waltzes|many people ski there in winter
Switzerland|Bern|Europe|German|the Alps cover much of the country|watches, chocolate and mountains|the country has several languages
Poland|Warsaw|Europe|Polish|the river Vistula flows through the city|dumplings, forests and music|storks build their nests on the roofs of villages
Sweden|Stockholm|Europe|Swedish|the city is built on many islands|forests, lakes and long winters|in summer the nights are very short
Norway|Oslo|Europe|Norwegian|deep fjords cut into the coast|fjords, fish and snow|the northern lights can be seen there
Denmark|Copenhagen|Europe|Danish|the sea is never far away|bicycles, toys and windmills|a small mermaid statue sits by the harbor
Finland|Helsinki|Europe|Finnish|the country has thousands of lakes|saunas, lakes and forests|reindeer live in the north
Iceland|Reykjavik|Europe|Icelandic|the island lies in the cold north Atlantic|volcanoes, hot springs and ice|warm water from the ground heats the houses
the Netherlands|Amsterdam|Europe|Dutch|much of the land lies below the sea|tulips, bicycles and canals|people there built dikes to hold back the water
Belgium|Brussels|Europe|Dutch and French|the land is mostly flat|chocolate, waffles and comics|many people of Europe meet in Brussels
Hungary|Budapest|Europe|Hungarian|the river Danube divides the city|hot baths and spicy soup|the city was once two towns
Ukraine|Kyiv|Europe|Ukrainian|the river Dnipro flows through the city|wheat, sunflowers and songs|its wide fields feed many people
Russia|Moscow|Europe and Asia|Russian|it is the largest country in the world|cold winters, ballet and tea|the longest railway in the world crosses it
Turkey|Ankara|Asia and Europe|Turkish|the country lies between two seas|carpets, tea and sweet pastries|its largest city is Istanbul
Egypt|Cairo|Africa|Arabic|the river Nile flows through the country|pyramids, deserts and the Nile|the great pyramids are thousands of years old
Morocco|Rabat|Africa|Arabic|the Atlas Mountains cross the country|markets, mint tea and spices|the Sahara desert begins in the south
Kenya|Nairobi|Africa|Swahili and English|wide grasslands cover the south|lions, elephants and fast runners|many visitors come to see wild animals
Nigeria|Abuja|Africa|English|the river Niger flows through the country|music, films and busy markets|it has more people than any other country in Africa
Ethiopia|Addis Ababa|Africa|Amharic|high mountains cover much of the country|coffee, mountains and long distance runners|coffee was first found there
Ghana|Accra|Africa|English|the country lies on a warm coast|cocoa, gold and bright cloth|much of the cocoa for chocolate grows there
Senegal|Dakar|Africa|French|the country lies on the Atlantic Ocean|drums, peanuts and fishing boats|painted boats rest on its beaches
Japan|Tokyo|Asia|Japanese|the country is a chain of islands|sushi, fast trains and cherry trees|Mount Fuji is its highest mountain
China|Beijing|Asia|Chinese|the river Yangtze is the longest in Asia|tea, silk and the Great Wall|pandas live in its bamboo forests
India|New Delhi|Asia|Hindi and English|the river Ganges flows through the plains|spices, tigers and colorful festivals|it has more people than any other country
South Korea|Seoul|Asia|Korean|the country lies on a peninsula|phones, music and spicy cabbage|mountains rise around the city
Thailand|Bangkok|Asia|Thai|warm seas lie around the south|temples, elephants and spicy food|boats sell fruit on the water
Vietnam|Hanoi|Asia|Vietnamese|the country has a long coast|noodle soup, rice fields and coffee|motorbikes fill the streets of its cities
Indonesia|Jakarta|Asia|Indonesian|the country has thousands of islands|volcanoes, spices and rain forests|it has more islands than most people can count
the Philippines|Manila|Asia|Filipino and English|the country has thousands of islands|beaches, mangoes and friendly people|warm rain falls for half of the year
Iran|Tehran|Asia|Persian|high mountains stand north of the city|carpets, poems and gardens|pistachios and saffron grow there
Iraq|Baghdad|Asia|Arabic|the river Tigris flows through the city|dates, rivers and ancient cities|writing began in that land long ago
Israel|Jerusalem|Asia|Hebrew|the salty Dead Sea lies in the east|oranges, old cities and deserts|people float easily in the Dead Sea
Mongolia|Ulaanbaatar|Asia|Mongolian|wide grasslands cover the country|horses, tents and open skies|many families live in round tents
Nepal|Kathmandu|Asia|Nepali|the highest mountain in the world stands there|high mountains and brave climbers|Mount Everest rises in the north
Pakistan|Islamabad|Asia|Urdu and English|the river Indus flows through the country|mangoes, mountains and cricket|some of the highest mountains in the world are there
Cuba|Havana|North America|Spanish|the island lies in a warm sea|music, sugar and old cars|people dance in the streets of Havana
Mexico|Mexico City|North America|Spanish|volcanoes stand near the city|corn, chili and old pyramids|chocolate was first drunk there
Canada|Ottawa|North America|English and French|the country has more lakes than any other|maple trees, snow and bears|a red maple leaf is on its flag
the United States|Washington|North America|English|the river Mississippi flows through the country|large cities, deserts and films|its flag has fifty stars
Jamaica|Kingston|North America|English|the island lies in a warm sea|music, sprinters and beaches|blue mountains rise above the city
Brazil|Brasilia|South America|Portuguese|the river Amazon flows through the country|football, rain forests and carnival|it is the largest country in South America
Argentina|Buenos Aires|South America|Spanish|the Andes stand in the west|tango, beef and wide plains|penguins live on its southern coast
Chile|Santiago|South America|Spanish|the country is very long and narrow|copper, mountains and wine|the driest desert in the world lies in the north
Peru|Lima|South America|Spanish|the Andes run through the country|llamas, potatoes and ancient cities|Machu Picchu stands high in its mountains
Colombia|Bogota|South America|Spanish|the country touches two oceans|coffee, flowers and emeralds|the city lies high in the mountains
Uruguay|Montevideo|South America|Spanish|the country lies on a wide river mouth|beaches, cattle and tea|it is one of the smallest countries on its continent
Ecuador|Quito|South America|Spanish|the equator crosses the country|bananas, volcanoes and giant turtles|giant turtles live on its islands
Australia|Canberra|Australia|English|dry deserts cover the middle of the land|kangaroos, beaches and coral reefs|the largest coral reef in the world lies off its coast
New Zealand|Wellington|Oceania|English and Maori|the country has two large islands|sheep, mountains and kiwis|the kiwi is a bird that cannot fly
""")

# animal | plural | baby | sound | home | food | legs | class | fact | color
ANIMALS = table("""
dog|dogs|puppy|barks|in a house with people|meat and bones|four|mammal|a dog has a very good nose and can follow a smell for miles|brown
cat|cats|kitten|meows|in a house with people|fish and mice|four|mammal|a cat can see well in the dark and lands on its feet|gray
cow|cows|calf|moos|on a farm|grass and hay|four|mammal|a cow gives milk that people drink|white and black
horse|horses|foal|neighs|in a stable|grass and oats|four|mammal|a horse can sleep while it is standing|brown
pig|pigs|piglet|oinks|on a farm|corn and roots|four|mammal|a pig rolls in mud to keep its skin cool|pink
sheep|sheep|lamb|bleats|in a meadow|grass|four|mammal|a sheep gives wool for warm clothes|white
goat|goats|kid|bleats|on a hill|leaves and grass|four|mammal|a goat can climb steep rocks|white
chicken|chickens|chick|clucks|in a barn|seeds and worms|two|bird|a hen lays eggs almost every day|brown
duck|ducks|duckling|quacks|on a pond|water plants and insects|two|bird|a duck has webbed feet for swimming|brown
goose|geese|gosling|honks|near a lake|grass and seeds|two|bird|a goose flies south in winter with its flock|white
lion|lions|cub|roars|on the grasslands of Africa|meat|four|mammal|a lion lives in a family that is called a pride|golden
tiger|tigers|cub|roars|in the forests of Asia|meat|four|mammal|a tiger has stripes that hide it in tall grass|orange and black
elephant|elephants|calf|trumpets|on the plains of Africa and in the forests of Asia|leaves and bark|four|mammal|an elephant uses its trunk to drink and to lift things|gray
giraffe|giraffes|calf|hums|on the grasslands of Africa|leaves from tall trees|four|mammal|a giraffe is the tallest animal on land|yellow and brown
zebra|zebras|foal|barks|on the grasslands of Africa|grass|four|mammal|no two zebras have the same stripes|black and white
monkey|monkeys|infant|chatters|in the trees of warm forests|fruit and nuts|two|mammal|a monkey uses its hands and its tail to climb|brown
bear|bears|cub|growls|in the forest|berries, fish and honey|four|mammal|a bear sleeps through most of the winter|brown
wolf|wolves|pup|howls|in the forest|meat|four|mammal|a wolf hunts together with its pack|gray
fox|foxes|kit|yelps|in a den under the ground|mice and berries|four|mammal|a fox has a thick red tail that keeps it warm|red
rabbit|rabbits|kit|squeaks|in a burrow|grass and carrots|four|mammal|a rabbit has long ears and can hear very well|gray
mouse|mice|pup|squeaks|in a small hole|seeds and cheese|four|mammal|a mouse can squeeze through a very small gap|gray
squirrel|squirrels|kit|chatters|in a tree|nuts and acorns|four|mammal|a squirrel hides nuts in autumn and eats them in winter|red
hedgehog|hedgehogs|hoglet|snuffles|under a hedge|insects and worms|four|mammal|a hedgehog rolls into a ball when it is afraid|brown
deer|deer|fawn|bellows|in the forest|leaves and grass|four|mammal|a male deer grows new antlers every year|brown
camel|camels|calf|grunts|in the desert|dry plants|four|mammal|a camel can live for many days without water|sandy
kangaroo|kangaroos|joey|clicks|on the plains of Australia|grass|two|mammal|a kangaroo carries its baby in a pouch|brown
koala|koalas|joey|grunts|in the trees of Australia|eucalyptus leaves|four|mammal|a koala sleeps for most of the day|gray
panda|pandas|cub|bleats|in the bamboo forests of China|bamboo|four|mammal|a panda eats for twelve hours a day|black and white
bat|bats|pup|squeaks|in a cave|insects and fruit|two|mammal|a bat finds its way in the dark by listening to echoes|black
whale|whales|calf|sings|in the ocean|small sea animals|no|mammal|the blue whale is the largest animal in the world|blue
dolphin|dolphins|calf|whistles|in the ocean|fish|no|mammal|a dolphin breathes air and is very clever|gray
seal|seals|pup|barks|on cold coasts|fish|no|mammal|a seal has thick fat that keeps it warm|gray
penguin|penguins|chick|squawks|on the ice of the far south|fish|two|bird|a penguin cannot fly, but it swims very well|black and white
owl|owls|owlet|hoots|in a hollow tree|mice|two|bird|an owl hunts at night and flies without a sound|brown
eagle|eagles|eaglet|screams|on high cliffs|fish and small animals|two|bird|an eagle can see a mouse from far up in the sky|brown
parrot|parrots|chick|talks|in warm forests|seeds and fruit|two|bird|a parrot can learn to say words|green
robin|robins|chick|sings|in gardens|worms and berries|two|bird|a robin has a bright red breast|brown and red
crow|crows|chick|caws|in tall trees|almost anything|two|bird|a crow can use a stick as a tool|black
swan|swans|cygnet|hisses|on a lake|water plants|two|bird|a swan stays with one partner for life|white
frog|frogs|tadpole|croaks|near a pond|flies and worms|four|amphibian|a frog begins its life in water as a tadpole|green
snake|snakes|snakelet|hisses|in grass and sand|mice and eggs|no|reptile|a snake smells with its tongue|green
turtle|turtles|hatchling|hisses|near water|plants and small fish|four|reptile|a turtle carries its house on its back and can grow very old|green
crocodile|crocodiles|hatchling|growls|in warm rivers|fish and meat|four|reptile|a crocodile can wait in the water for hours|green
lizard|lizards|hatchling|clicks|on warm stones|insects|four|reptile|a lizard can lose its tail and grow a new one|green
shark|sharks|pup|makes no sound|in the ocean|fish|no|fish|a shark has many rows of sharp teeth|gray
salmon|salmon|fry|makes no sound|in rivers and in the sea|small fish|no|fish|a salmon swims up the river where it was born|silver
octopus|octopuses|hatchling|makes no sound|among rocks in the sea|crabs|no|mollusk|an octopus has eight arms and three hearts|red
bee|bees|larva|buzzes|in a hive|nectar|six|insect|a bee makes honey and carries pollen from flower to flower|yellow and black
ant|ants|larva|makes no sound|in a nest under the ground|seeds and crumbs|six|insect|an ant can carry things much heavier than itself|black
butterfly|butterflies|caterpillar|makes no sound|in meadows|nectar|six|insect|a butterfly begins its life as a caterpillar|many colors
spider|spiders|spiderling|makes no sound|in a web|insects|eight|arachnid|a spider spins a web of thin, strong silk|black
cheetah|cheetahs|cub|growls|on the grasslands of Africa|meat|four|mammal|a cheetah is the fastest animal on land|yellow and black
hippo|hippos|calf|grunts|in the rivers of Africa|grass|four|mammal|a hippo spends the hot day in the water|gray
rhino|rhinos|calf|snorts|on the grasslands of Africa|grass and leaves|four|mammal|a rhino has one or two horns on its nose|gray
donkey|donkeys|foal|brays|on a farm|grass and hay|four|mammal|a donkey is strong and careful and carries heavy loads|gray
beaver|beavers|kit|whines|in rivers and ponds|bark and leaves|four|mammal|a beaver cuts down trees with its teeth and builds dams|brown
otter|otters|pup|whistles|in rivers and in the sea|fish and crabs|four|mammal|an otter likes to slide down muddy banks|brown
mole|moles|pup|squeaks|in tunnels under the ground|worms|four|mammal|a mole is almost blind and digs with its strong hands|black
llama|llamas|cria|hums|in the mountains of South America|grass|four|mammal|a llama can carry loads along steep paths|white
ostrich|ostriches|chick|booms|on the plains of Africa|plants and seeds|two|bird|an ostrich cannot fly, but it runs faster than a horse|black and white
flamingo|flamingos|chick|honks|in shallow lakes|small shrimps|two|bird|a flamingo is pink because of the food that it eats|pink
pigeon|pigeons|squab|coos|in cities|seeds and crumbs|two|bird|a pigeon finds its way home over long distances|gray
woodpecker|woodpeckers|chick|drums|in the forest|insects under the bark|two|bird|a woodpecker makes holes in trees with its beak|black and red
peacock|peacocks|peachick|screams|in parks and forests|seeds and insects|two|bird|a peacock has a long tail with bright green eyes|blue and green
crab|crabs|larva|makes no sound|on the beach|almost anything|ten|crustacean|a crab walks sideways|red
worm|worms|hatchling|makes no sound|in the soil|dead leaves|no|worm|a worm makes the soil loose and rich|pink
ladybug|ladybugs|larva|makes no sound|in gardens|small insects|six|insect|a ladybug is red with black spots|red and black
mosquito|mosquitoes|larva|buzzes|near water|nectar and blood|six|insect|only the female mosquito bites|gray
cricket|crickets|nymph|chirps|in the grass|leaves|six|insect|a cricket makes music with its wings|black
hamster|hamsters|pup|squeaks|in a cage or in a burrow|seeds and vegetables|four|mammal|a hamster carries food in its cheeks|golden
snail|snails|snailet|makes no sound|in damp gardens|leaves|no|mollusk|a snail carries its shell on its back|brown
""")

# topic names (comma: also called) then sentences; the first is a definition and answers "What is ...?"
TOPICS = groups("""
the sun
The sun is a star at the center of our solar system.
It is a huge ball of hot gas that gives us light and heat.
The sun is so large that a million Earths could fit inside it.
Light from the sun needs about eight minutes to reach the Earth.
Plants use sunlight to grow, and all animals depend on plants.

the moon
The moon is a ball of rock that travels around the Earth.
It needs about one month for one journey around us.
The moon has no light of its own, but it reflects the light of the sun.
Its surface is covered with dust, mountains and craters.
The pull of the moon makes the tides of the sea.

the Earth
The Earth is the planet on which we live.
It is the third planet from the sun.
Most of its surface is covered with water.
The Earth turns around once a day and travels around the sun once a year.
A thin layer of air protects all living things.

a star
A star is a huge ball of glowing gas far away in space.
Stars look small only because they are so distant.
The closest star to us is the sun.
Some stars are red and cool, and others are blue and very hot.
On a clear night you can see thousands of them.

a planet
A planet is a large round body that travels around a star.
Our solar system has eight planets.
Mercury is the closest planet to the sun and Neptune is the farthest.
Jupiter is the largest planet, and Saturn has beautiful rings.
The Earth is the only planet that is known to have life.

gravity
Gravity is the force that pulls things toward each other.
It keeps our feet on the ground and makes an apple fall from a tree.
Gravity also keeps the moon near the Earth and the Earth near the sun.
The heavier a body is, the stronger it pulls.

water
Water is a clear liquid that all living things need.
It freezes at zero degrees and boils at one hundred degrees Celsius.
Frozen water is called ice, and hot water turns into steam.
Water falls as rain, flows in rivers and gathers in the sea.
People should drink several glasses of water every day.

rain
Rain is water that falls from the clouds in small drops.
The sun warms the sea, and some of the water rises as vapor.
High in the air the vapor cools and forms clouds.
When the drops become too heavy, they fall to the ground.
Rain fills the rivers and helps the plants to grow.

snow
Snow is frozen water that falls from the clouds in winter.
Every snowflake is a small crystal with six sides.
Snow is white because its crystals scatter the light.
Children like to build snowmen and to ride on sleds.

a rainbow
A rainbow is an arc of colors that appears when the sun shines through rain.
The drops bend the white light and split it into colors.
The colors are red, orange, yellow, green, blue, indigo and violet.
To see a rainbow, you must stand with the sun behind you.

a cloud
A cloud is made of many tiny drops of water or ice.
White clouds bring fair weather, and dark clouds bring rain.
The wind carries the clouds across the sky.
A cloud that touches the ground is called fog.

wind
Wind is air that moves from one place to another.
It begins when the sun warms some places more than others.
A gentle wind is called a breeze and a very strong wind is called a storm.
Wind can turn mills, push sailing boats and make electricity.

lightning
Lightning is a giant electric spark in the sky.
It is hotter than the surface of the sun.
Thunder is the sound that lightning makes.
We see the flash first, because light is faster than sound.

a volcano
A volcano is a mountain that can throw out hot melted rock.
The melted rock is called lava when it reaches the surface.
Ash from a volcano makes the soil rich.
Many volcanoes sleep for hundreds of years before they wake.

an earthquake
An earthquake is a shaking of the ground.
It happens when large plates of rock deep below us suddenly move.
Most earthquakes are so weak that nobody feels them.
Strong ones can damage houses, so people build them carefully.

the ocean, the sea
The ocean is the huge body of salt water that covers most of the Earth.
The largest ocean is the Pacific Ocean.
Fish, whales, crabs and corals live in it.
The deepest places are dark, cold and almost unknown.
Ships carry goods across the ocean from one land to another.

a river
A river is a large stream of water that flows to the sea.
It begins as a small spring in the hills.
On its way it grows wider because other streams join it.
Many cities were built beside rivers, because people need water.

a mountain
A mountain is a very high hill, often with rock and snow at the top.
The highest mountain in the world is Mount Everest.
The air on a high mountain is thin and cold.
Rivers often begin in the mountains.

a desert
A desert is a dry place where very little rain falls.
It can be hot during the day and cold at night.
The Sahara in Africa is the largest hot desert.
Plants such as the cactus store water for the dry months.

a forest
A forest is a large area that is covered with trees.
Forests clean the air and give many animals a home.
In autumn many trees lose their leaves.
Mushrooms, ferns and moss grow in the shade.

a tree
A tree is a tall plant with a trunk of wood.
Its roots drink water from the soil, and its leaves catch the light.
Some trees live for more than a thousand years.
Trees give us wood, fruit, shade and clean air.

a flower
A flower is the part of a plant that makes seeds.
Its bright colors and sweet smell call bees and butterflies.
The bees carry pollen from one flower to another.
Roses, tulips, daisies and sunflowers are well known flowers.

a seed
A seed is a small thing from which a new plant can grow.
It needs water, warmth and air.
First a root grows down, and then a stem grows up toward the light.
Wind, water and animals carry seeds to new places.

photosynthesis
Photosynthesis is the way in which green plants make food from light.
They take in water and carbon dioxide and use the energy of the sun.
They make sugar and give off oxygen.
Animals and people breathe this oxygen.

air
Air is the mixture of gases around us.
Most of it is nitrogen, and about one fifth is oxygen.
We cannot see the air, but we can feel it when the wind blows.
People, animals and fire need the oxygen in the air.

fire
Fire is the light and heat that come from something that burns.
It needs fuel, heat and oxygen.
Fire can cook food and warm a house, but it can also be dangerous.
Water puts out a wood fire because it cools it.

light
Light is a kind of energy that our eyes can see.
Nothing in the world is faster than light.
White light is a mixture of all colors.
A mirror reflects light, and a lens bends it.

sound
Sound is a trembling of the air that our ears can hear.
A fast trembling makes a high sound and a slow one makes a low sound.
Sound travels through air, water and walls, but not through empty space.
An echo is a sound that comes back from a wall.

electricity
Electricity is a form of energy that comes from tiny charged particles.
It flows through wires and gives power to lamps, stoves and computers.
It can be made by wind, water, sunlight or burning fuel.
Never touch a broken wire, because electricity can hurt you.

a magnet
A magnet is a piece of metal that attracts iron.
Every magnet has a north pole and a south pole.
Equal poles push each other away, and different poles pull each other close.
A compass needle is a small magnet that points north.

an atom
An atom is a very tiny piece of matter.
Everything around us is made of atoms.
In the middle of an atom is the nucleus, and electrons move around it.
Atoms join together and form molecules.

energy
Energy is the power to do work.
It can be light, heat, motion or electricity.
Energy is never lost, but it can change from one form to another.
Our bodies get their energy from food.

a battery
A battery stores energy and gives it back as electricity.
Small batteries are found in clocks and toys, and large ones in electric cars.
Some batteries can be charged many times.
Old batteries should not be thrown into the trash.

the heart
The heart is a muscle that pumps blood through the body.
It beats about seventy times a minute.
The blood brings oxygen and food to every part of the body.
Running and swimming make the heart strong.

the brain
The brain is the organ with which we think, feel and remember.
It is made of many billions of cells that send signals to each other.
The brain needs sleep, food and exercise to work well.
Learning something new makes new connections in the brain.

a bone
A bone is a hard part inside the body.
An adult has about two hundred bones.
Bones hold us upright and protect the soft parts.
Milk, cheese and green vegetables keep bones strong.

sleep
Sleep is the time when the body and the mind rest.
Children need about ten hours of sleep and adults about eight.
While we sleep, the brain sorts what it has learned.
A dark and quiet room helps us to sleep well.

a dream
A dream is a story that the mind tells itself during sleep.
Some dreams are happy and some are strange.
We forget most dreams soon after we wake.
Nobody knows exactly why we dream.

milk
Milk is a white drink that mother animals make for their young.
People drink the milk of cows, goats and sheep.
Butter, cheese and yogurt are made from milk.
It contains calcium, which is good for bones.

bread
Bread is a food that is baked from flour, water, salt and yeast.
The yeast makes small bubbles, and so the dough rises.
Bread is eaten in almost every country.
Fresh bread has a brown crust and smells wonderful.

honey
Honey is a sweet food that bees make from nectar.
The bees store it in small cells of wax.
Honey can be kept for many years.
People like it on bread and in tea.

chocolate
Chocolate is a sweet food that is made from cocoa beans.
Cocoa trees grow in warm and rainy countries.
The beans are dried, roasted and ground.
Dark chocolate has more cocoa and less sugar than milk chocolate.

tea
Tea is a drink that is made from dried leaves and hot water.
It was first drunk in China a very long time ago.
Green tea and black tea come from the same plant.
Many people drink it with milk, lemon or sugar.

an apple
An apple is a round fruit that grows on a tree.
It can be red, green or yellow.
Apples are ripe in autumn.
People eat them fresh or bake them in a pie.

a library
A library is a place where people can read and borrow books.
It has thousands of books on long shelves.
A librarian helps visitors to find what they need.
A library should be a quiet place.

a school
A school is a place where children learn.
They learn to read, to write and to count.
Teachers explain new things and answer questions.
At school children also play and make friends.

a hospital
A hospital is a place where sick people get help.
Doctors and nurses work there day and night.
It has beds, medicines and many machines.
Visitors bring flowers to make the patients happy.

music
Music is the art of making pleasant sounds.
It has rhythm, melody and harmony.
People sing or play instruments such as the piano, the violin and the drum.
Music can make us happy, calm or sad.

a book
A book is a set of pages with words or pictures.
Some books tell stories, and others teach us facts.
Books were once copied by hand, and later they were printed.
A good book is like a friend who is always there.

a computer
A computer is a machine that follows instructions very fast.
It works with numbers that are made of ones and zeros.
The instructions are called a program.
Computers help us to write, to calculate, to draw and to talk to each other.

a program
A program is a list of instructions for a computer.
People write programs in languages such as C.
A mistake in a program is called a bug.
Good programs are short, clear and well tested.

the internet
The internet is a network that connects computers all over the world.
It carries messages, pictures, music and films.
With it people can learn new things and talk to friends far away.
Not everything on the internet is true, so it is wise to check.

a robot
A robot is a machine that can move and do work by itself.
Robots build cars, clean floors and explore other planets.
A program tells the robot what to do.
Robots are strong and patient, but they do not have feelings.

artificial intelligence, AI
Artificial intelligence is the science of making machines that can learn and solve problems.
Such machines learn from many examples.
They can read text, understand pictures and answer questions.
They are useful helpers, but they can make mistakes.
People should check important answers themselves.

a language model
A language model is a program that has learned to predict the next word of a text.
It reads many examples and stores what it learns in numbers called weights.
It writes a text word by word, and each new word depends on the words before.
Large models know a lot, and small models are fast and cheap.

a neural network
A neural network is a program with many small units that work together.
Each unit adds up its inputs and passes the result on.
The network learns by changing the weights between its units.
Neural networks can recognize pictures, sounds and words.

a ternary model, BitNet
A ternary model is a neural network whose weights are only minus one, zero or one.
Because of that it needs little memory and no multiplications for its weights.
Three values carry about 1.58 bits of information.
Such a model can run on a small computer without a graphics card.

a bicycle
A bicycle is a vehicle with two wheels that you move with your legs.
It has pedals, a chain, a saddle and brakes.
Riding a bicycle is healthy and does not harm the air.
It is wise to wear a helmet.

a train
A train is a row of cars that runs on rails.
An engine pulls the cars from station to station.
Fast trains can go more than three hundred kilometers an hour.
Trains carry many people and heavy goods.

an airplane
An airplane is a machine with wings that can fly.
Its engines push it forward, and the air lifts its wings.
A pilot sits in the front and steers it.
An airplane can cross an ocean in a few hours.

a ship
A ship is a large boat that sails on the sea.
It floats because it pushes away water that weighs as much as the ship.
A captain and a crew work on board.
Ships carry grain, oil, cars and people.

a bridge
A bridge is a road over a river, a valley or another road.
It can be built of wood, stone or steel.
A strong bridge can carry many trains and cars.
The oldest bridges were only logs across a stream.

a clock
A clock is a machine that shows the time.
A day has twenty four hours, an hour has sixty minutes and a minute has sixty seconds.
Old clocks have a pendulum that swings from side to side.
The short hand shows the hours and the long hand shows the minutes.

money
Money is what people use to buy and sell things.
It can be coins, paper notes or numbers in a bank.
Before there was money, people traded one thing for another.
It is wise to save some money for later.

friendship
Friendship is a warm bond between people who like and trust each other.
Friends help each other in good and bad times.
A good friend listens and tells the truth.
It takes time to build a friendship.

spring
Spring is the season when nature wakes up after the winter.
The days grow longer and the snow melts.
Flowers bloom and birds build their nests.
Farmers plow their fields and sow seeds.

summer
Summer is the warmest season of the year.
The days are long and the nights are short.
Children have holidays and swim in the lake.
Cherries, berries and tomatoes become ripe.

autumn, fall
Autumn is the season between summer and winter.
The leaves turn yellow, orange and red.
Farmers bring in the harvest of apples, corn and pumpkins.
Many birds fly south to warmer lands.

winter
Winter is the coldest season of the year.
The days are short and the nights are long.
Snow may cover the fields, and ice may cover the lakes.
People wear warm coats and sit by the fire.

a dinosaur, dinosaurs
A dinosaur was an animal that lived on Earth millions of years ago.
Some dinosaurs were as small as a hen, and others were longer than three buses.
Most of them died out long before there were people.
Birds are the living relatives of the dinosaurs.

a pyramid, the pyramids
A pyramid is a huge stone building with a pointed top.
The most famous pyramids stand in Egypt.
They were built as tombs for kings thousands of years ago.
Thousands of workers moved the heavy blocks of stone.

space
Space is the wide and empty region beyond the air of the Earth.
There is no air and no sound in space.
Astronauts travel there in rockets and wear special suits.
Space is so large that light needs years to travel between the stars.

a rocket
A rocket is a vehicle that can fly into space.
It burns fuel and pushes hot gas out at the back.
The gas goes down and so the rocket goes up.
Rockets carry satellites, tools and astronauts.

a telescope
A telescope is a tool that makes distant things look larger.
It gathers light with a lens or with a mirror.
With a telescope you can see the craters of the moon and the rings of Saturn.
The best telescopes stand on high mountains or fly in space.

a year
A year is the time that the Earth needs for one journey around the sun.
It has twelve months, fifty two weeks and three hundred and sixty five days.
Every fourth year has one day more and is called a leap year.
The new year begins on the first of January.

the solar system
The solar system is the sun and everything that travels around it.
It has eight planets, many moons and countless small rocks.
The four inner planets are made of rock, and the four outer planets are much larger.
Far outside there are comets of ice and dust.

Mars
Mars is the fourth planet from the sun.
It is called the red planet because its dust is full of rust.
A day on Mars is a little longer than a day on Earth.
Robots drive over its surface and search for traces of water.

Jupiter
Jupiter is the largest planet in our solar system.
It is a giant ball of gas with a great red storm.
Jupiter has many moons, and four of them can be seen with a small telescope.
It turns around in only ten hours.

Saturn
Saturn is a giant planet that is well known for its bright rings.
The rings are made of countless pieces of ice and rock.
Saturn is so light that it would float on water.
It needs almost thirty years to travel around the sun.

Venus
Venus is the second planet from the sun.
It is the hottest planet, because thick clouds keep its heat.
Venus shines so brightly that people call it the morning star or the evening star.
A day on Venus is longer than its year.

Europe
Europe is a continent with more than forty countries.
France, Germany, Italy and Spain are some of them.
The Alps are its best known mountains.
Many languages are spoken there.

Asia
Asia is the largest continent.
More than half of all people live there.
China, India and Japan are in Asia.
The highest mountain in the world stands in Asia.

Africa
Africa is a large and warm continent.
The Sahara desert lies in the north.
Lions, elephants and giraffes live on its grasslands.
The river Nile flows through Africa to the sea.

Antarctica
Antarctica is the coldest continent, and it lies around the South Pole.
It is covered with thick ice.
Nobody lives there all the time except scientists and penguins.
In summer the sun shines there day and night.

the weather
The weather is what happens in the air around us.
It can be sunny, cloudy, rainy, windy or snowy.
Scientists measure the temperature and the wind to predict it.
A red sky in the evening often means a fair day.

a garden
A garden is a piece of land where people grow flowers and vegetables.
In spring the gardener sows the seeds, and in summer everything needs water.
Bees and birds are welcome guests in a garden.
Working in the garden makes people calm and healthy.

a castle
A castle is a large old building with thick walls and towers.
Kings and knights lived there long ago.
A deep ditch with water kept enemies away.
Today many castles are museums.

writing
Writing is the art of putting words on paper.
The first people who wrote used clay and small sticks.
Later they wrote with feathers, pens and machines.
Thanks to writing we know what people thought long ago.

mathematics, math
Mathematics is the study of numbers, shapes and patterns.
It begins with counting and adding.
Engineers need it to build bridges, and sailors need it to find their way.
A good puzzle makes mathematics fun.

exercise, sport
Exercise is movement that makes the body strong.
Walking, running, swimming and dancing are good ways to move.
It helps the heart, the muscles and the mood.
Half an hour a day is enough to feel better.

food
Food is what people and animals eat to get energy.
Fruit, vegetables, bread, rice, fish and milk are common foods.
Good food keeps the body healthy.
It tastes best when it is shared with friends.

a machine
A machine is a thing that helps us to do work.
The lever, the wheel and the screw are simple machines.
Modern machines have engines and computers.
A machine needs care, or it will break.

a city
A city is a large place where many people live and work.
It has streets, shops, schools and parks.
Buses and trains carry people from one place to another.
Some cities have more than ten million people.

an island
An island is land with water on all sides.
Some islands were made by volcanoes, and others by coral.
Iceland, Cuba and Jamaica are islands.
Plants and animals on an island are often found nowhere else.

football, soccer
Football is a game in which two teams try to kick a ball into a goal.
Each team has eleven players.
Only the goalkeeper may touch the ball with the hands.
A game lasts ninety minutes.

chess
Chess is a board game for two players.
Each player has sixteen pieces, and the most important one is the king.
The queen is the strongest piece.
The game ends when a king is caught and cannot escape.
""")

OPPOSITES = table("""
hot|cold
big|small
tall|short
long|short
fast|slow
happy|sad
light|dark
day|night
up|down
left|right
in|out
open|closed
full|empty
old|young
new|old
hard|soft
wet|dry
loud|quiet
strong|weak
heavy|light
rich|poor
good|bad
clean|dirty
early|late
near|far
high|low
wide|narrow
deep|shallow
thick|thin
sweet|sour
brave|afraid
easy|difficult
true|false
first|last
begin|end
push|pull
buy|sell
win|lose
laugh|cry
love|hate
rough|smooth
sharp|dull
summer|winter
north|south
east|west
always|never
more|less
black|white
top|bottom
inside|outside
front|back
before|after
alive|dead
asleep|awake
beautiful|ugly
cheap|expensive
clever|stupid
polite|rude
careful|careless
friend|enemy
question|answer
war|peace
hello|goodbye
yes|no
man|woman
boy|girl
king|queen
brother|sister
give|take
come|go
arrive|leave
find|lose
remember|forget
start|stop
sit|stand
float|sink
save|spend
same|different
possible|impossible
""")

COLORS = table("""
the sky|blue
grass|green
snow|white
blood|red
the sun|yellow
coal|black
a banana|yellow
a lemon|yellow
a carrot|orange
an orange|orange
a tomato|red
a strawberry|red
a cherry|red
milk|white
a cloud|white
a leaf|green
a frog|green
a pea|green
a cucumber|green
chocolate|brown
a bear|brown
wood|brown
the sea|blue
a raven|black
an elephant|gray
a stone|gray
a flamingo|pink
a pig|pink
a plum|purple
lavender|purple
gold|yellow
silver|gray
a fire engine|red
the night sky|black
salt|white
butter|yellow
a sunflower|yellow
a rose|red
an apple|red or green
a pumpkin|orange
spinach|green
a cloud before the rain|gray
a mouse|gray
a crow|black
a swan|white
an egg|white or brown
coffee|brown
bread|brown
the Earth seen from space|blue
Mars|red
a violet|purple
""")

# job | what they do | where | tool
JOBS = table("""
baker|bakes bread and cakes|in a bakery|an oven
farmer|grows food and takes care of animals|on a farm|a tractor
doctor|helps sick people to get well|in a hospital|a stethoscope
nurse|takes care of patients|in a hospital|bandages
teacher|helps children to learn|at a school|books and a board
pilot|flies airplanes|in a cockpit|many instruments
sailor|works on a ship|at sea|ropes and maps
carpenter|makes things of wood|in a workshop|a saw and a hammer
painter|paints pictures or walls|in a studio|brushes and colors
cook|prepares meals|in a kitchen|pots and knives
tailor|sews clothes|in a small shop|a needle and thread
gardener|takes care of plants|in a garden|a spade and a watering can
firefighter|puts out fires and saves people|at a fire station|a long hose
fisherman|catches fish|on a boat|a net
librarian|takes care of books|in a library|a catalog
mechanic|repairs cars and machines|in a garage|a wrench
astronaut|travels into space|in a spaceship|a space suit
dentist|takes care of teeth|in a clean office|a small mirror
musician|plays music|on a stage|an instrument
writer|writes books and stories|at a desk|a pen
scientist|studies how the world works|in a laboratory|a microscope
engineer|designs machines and bridges|in an office|drawings and numbers
programmer|writes programs for computers|at a desk|a keyboard
shepherd|watches over the sheep|on a hill|a long staff
miller|grinds grain into flour|in a mill|two heavy stones
blacksmith|makes things of iron|in a forge|a hammer and an anvil
judge|decides what is right by the law|in a court|books of law
mail carrier|brings letters and parcels|from house to house|a large bag
""")

# object | use | material
THINGS = table("""
a hammer|drive nails into wood|wood and steel
a saw|cut wood|steel
a needle|sew clothes|steel
a pencil|write and draw|wood and graphite
a spoon|eat soup|metal
a knife|cut food|steel
a cup|drink tea|clay
a lamp|light a room|glass and metal
a key|open a lock|metal
a ladder|climb to high places|wood
a broom|sweep the floor|straw and wood
an umbrella|stay dry in the rain|cloth
a boat|cross the water|wood
a map|find the way|paper
a compass|find out where north is|brass and glass
a thermometer|measure the temperature|glass
a scale|measure weight|metal
a ruler|measure length|wood or plastic
a camera|take pictures|glass and plastic
a telephone|talk to people far away|plastic and metal
a pillow|rest your head|cloth and feathers
a blanket|keep warm|wool
a basket|carry things|willow
a bucket|carry water|metal or plastic
a rope|tie and pull things|hemp
a candle|make a small light|wax
a mirror|see your own face|glass
a kettle|boil water|metal
an oven|bake bread|steel
a refrigerator|keep food cold|metal and plastic
a microscope|see very small things|glass and metal
a pair of glasses|see better|glass and plastic
a pair of scissors|cut paper|steel
soap|wash your hands|oil and salt
a shovel|dig a hole|wood and steel
a wheel|make things roll|rubber and metal
""")

# question | answer sentence | short answer
TRIVIA = table("""
What is the largest ocean?|The largest ocean is the Pacific Ocean.|The Pacific Ocean
What is the largest planet?|The largest planet in our solar system is Jupiter.|Jupiter
What is the smallest planet?|The smallest planet in our solar system is Mercury.|Mercury
Which planet is closest to the sun?|Mercury is the planet that is closest to the sun.|Mercury
Which planet is called the red planet?|Mars is called the red planet.|Mars
Which planet has rings?|Saturn is well known for its bright rings.|Saturn
How many planets are there?|There are eight planets in our solar system.|Eight
What are the names of the planets?|The planets are Mercury, Venus, Earth, Mars, Jupiter, Saturn, Uranus and Neptune.|Mercury, Venus, Earth, Mars, Jupiter, Saturn, Uranus and Neptune
What is the highest mountain in the world?|The highest mountain in the world is Mount Everest.|Mount Everest
What is the largest animal in the world?|The largest animal in the world is the blue whale.|The blue whale
What is the largest animal on land?|The largest animal on land is the elephant.|The elephant
What is the tallest animal?|The tallest animal is the giraffe.|The giraffe
What is the fastest animal on land?|The fastest animal on land is the cheetah.|The cheetah
What is the largest bird?|The largest bird is the ostrich.|The ostrich
What is the smallest bird?|The smallest bird is the hummingbird.|The hummingbird
What is the largest country in the world?|The largest country in the world is Russia.|Russia
What is the smallest country in the world?|The smallest country in the world is Vatican City.|Vatican City
What is the largest continent?|The largest continent is Asia.|Asia
What is the smallest continent?|The smallest continent is Australia.|Australia
How many continents are there?|There are seven continents.|Seven
What are the continents?|The continents are Africa, Antarctica, Asia, Australia, Europe, North America and South America.|Africa, Antarctica, Asia, Australia, Europe, North America and South America
How many oceans are there?|There are five oceans.|Five
What is the coldest continent?|The coldest continent is Antarctica.|Antarctica
What is the largest desert that is hot?|The largest hot desert is the Sahara in Africa.|The Sahara
How many days are in a week?|There are seven days in a week.|Seven
How many days are in a year?|There are three hundred and sixty five days in a year.|365
How many months are in a year?|There are twelve months in a year.|Twelve
How many hours are in a day?|There are twenty four hours in a day.|Twenty four
How many minutes are in an hour?|There are sixty minutes in an hour.|Sixty
How many seconds are in a minute?|There are sixty seconds in a minute.|Sixty
How many weeks are in a year?|There are fifty two weeks in a year.|Fifty two
How many seasons are there?|There are four seasons: spring, summer, autumn and winter.|Four
What are the seasons?|The seasons are spring, summer, autumn and winter.|Spring, summer, autumn and winter
How many letters are in the alphabet?|There are twenty six letters in the English alphabet.|Twenty six
How many sides does a triangle have?|A triangle has three sides.|Three
How many sides does a square have?|A square has four equal sides.|Four
How many wheels does a bicycle have?|A bicycle has two wheels.|Two
How many wheels does a car have?|A car has four wheels.|Four
How many fingers does a hand have?|A hand has five fingers.|Five
How many teeth does an adult have?|An adult has thirty two teeth.|Thirty two
How many colors does a rainbow have?|A rainbow has seven colors.|Seven
What are the colors of the rainbow?|The colors of the rainbow are red, orange, yellow, green, blue, indigo and violet.|Red, orange, yellow, green, blue, indigo and violet
What are the primary colors?|The primary colors are red, yellow and blue.|Red, yellow and blue
What color do you get from blue and yellow?|Blue and yellow together make green.|Green
What color do you get from red and yellow?|Red and yellow together make orange.|Orange
What color do you get from red and blue?|Red and blue together make purple.|Purple
What color do you get from red and white?|Red and white together make pink.|Pink
What color do you get from black and white?|Black and white together make gray.|Gray
At what temperature does water freeze?|Water freezes at zero degrees Celsius.|Zero degrees Celsius
At what temperature does water boil?|Water boils at one hundred degrees Celsius.|One hundred degrees Celsius
What do bees make?|Bees make honey.|Honey
What do cows give us?|Cows give us milk.|Milk
What do hens lay?|Hens lay eggs.|Eggs
What do plants need to grow?|Plants need light, water, air and soil to grow.|Light, water, air and soil
What is bread made of?|Bread is made of flour, water, salt and yeast.|Flour, water, salt and yeast
What is cheese made of?|Cheese is made of milk.|Milk
What is glass made of?|Glass is made of sand.|Sand
What is paper made of?|Paper is made of wood.|Wood
What is ice?|Ice is frozen water.|Frozen water
What is steam?|Steam is hot water in the form of a gas.|Water as a gas
Where does the sun rise?|The sun rises in the east.|In the east
Where does the sun set?|The sun sets in the west.|In the west
Why is the sky blue?|The sky is blue because the air scatters blue light more than red light.|Because air scatters blue light
Why do leaves turn red in autumn?|Leaves turn red in autumn because the green color in them breaks down.|Because the green fades
Why do we sleep?|We sleep because the body and the brain need rest.|To rest
Why do birds fly south?|Many birds fly south because they find more food in warm lands during winter.|To find food
Why does ice float?|Ice floats because it is lighter than water.|Because it is lighter than water
Why is the sea salty?|The sea is salty because rivers carry salt from the rocks into it.|Rivers carry salt into it
Why do we have night and day?|We have day and night because the Earth turns around once every twenty four hours.|Because the Earth turns
Why do we have seasons?|We have seasons because the axis of the Earth is tilted.|Because the Earth is tilted
What is the fastest thing in the world?|Light is the fastest thing in the world.|Light
What is the hardest natural material?|The hardest natural material is diamond.|Diamond
What gas do we breathe?|We breathe air, and our bodies need the oxygen in it.|Oxygen
What is the center of the solar system?|The sun is the center of the solar system.|The sun
What is a group of wolves called?|A group of wolves is called a pack.|A pack
What is a group of lions called?|A group of lions is called a pride.|A pride
What is a group of birds called?|A group of birds is called a flock.|A flock
What is a group of fish called?|A group of fish is called a school.|A school
Where is the Eiffel Tower?|The Eiffel Tower is in Paris.|In Paris
Where is the Colosseum?|The Colosseum is in Rome.|In Rome
Where are the pyramids?|The most famous pyramids are in Egypt.|In Egypt
Where is the Great Wall?|The Great Wall is in China.|In China
Where is Mount Everest?|Mount Everest is in Asia, at the border of Nepal.|In Nepal
Where is Mount Fuji?|Mount Fuji is in Japan.|In Japan
Where is the Sahara?|The Sahara is in Africa.|In Africa
Where is the Amazon?|The river Amazon is in South America.|In South America
What is the longest river?|The Nile and the Amazon are the longest rivers in the world.|The Nile and the Amazon
What is the longest river in Africa?|The longest river in Africa is the Nile.|The Nile
What is the largest country in South America?|The largest country in South America is Brazil.|Brazil
What is the largest island?|The largest island in the world is Greenland.|Greenland
What is the deepest ocean?|The deepest ocean is the Pacific Ocean.|The Pacific Ocean
What is the hottest planet?|The hottest planet is Venus.|Venus
What is the third planet from the sun?|The third planet from the sun is the Earth.|The Earth
What is the fourth planet from the sun?|The fourth planet from the sun is Mars.|Mars
Which planet do we live on?|We live on the planet Earth.|The Earth
What is our galaxy called?|Our galaxy is called the Milky Way.|The Milky Way
What star is closest to us?|The star that is closest to us is the sun.|The sun
How long does the moon need to travel around the Earth?|The moon needs about one month to travel around the Earth.|About one month
How long does the Earth need to travel around the sun?|The Earth needs one year to travel around the sun.|One year
What is the first month of the year?|The first month of the year is January.|January
What is the last month of the year?|The last month of the year is December.|December
What is the shortest month?|The shortest month is February.|February
What is the first day of the week?|The first day of the week is Monday.|Monday
What are the days of the weekend?|The days of the weekend are Saturday and Sunday.|Saturday and Sunday
What season comes after winter?|After winter comes spring.|Spring
What season comes after spring?|After spring comes summer.|Summer
What season comes after summer?|After summer comes autumn.|Autumn
What season comes after autumn?|After autumn comes winter.|Winter
What is the coldest season?|The coldest season is winter.|Winter
What is the warmest season?|The warmest season is summer.|Summer
What is the first letter of the alphabet?|The first letter of the alphabet is A.|A
What is the last letter of the alphabet?|The last letter of the alphabet is Z.|Z
What are the vowels?|The vowels are A, E, I, O and U.|A, E, I, O and U
What is the alphabet?|The alphabet is A, B, C, D, E, F, G, H, I, J, K, L, M, N, O, P, Q, R, S, T, U, V, W, X, Y and Z.|The letters from A to Z
How many legs does a human have?|A human has two legs.|Two
How many eyes do we have?|We have two eyes.|Two
How many senses do we have?|We have five senses: sight, hearing, smell, taste and touch.|Five
What are the five senses?|The five senses are sight, hearing, smell, taste and touch.|Sight, hearing, smell, taste and touch
How many bones does a human have?|An adult has about two hundred bones.|About two hundred
How many hearts does an octopus have?|An octopus has three hearts.|Three
What do caterpillars become?|Caterpillars become butterflies.|Butterflies
What do tadpoles become?|Tadpoles become frogs.|Frogs
What animal gives wool?|Sheep give us wool.|The sheep
What animal has a trunk?|The elephant has a trunk.|The elephant
What animal has a long neck?|The giraffe has a long neck.|The giraffe
What animal has stripes?|Zebras and tigers have stripes.|The zebra
What animal is called the king of the animals?|The lion is called the king of the animals.|The lion
What animal says meow?|The cat says meow.|The cat
What animal says moo?|The cow says moo.|The cow
What animal barks?|The dog barks.|The dog
Which bird cannot fly?|Penguins, ostriches and kiwis cannot fly.|The penguin
What is H2O?|H2O is the chemical name of water.|Water
What is two plus two?|Two plus two is four.|Four
What is wool?|Wool is the soft hair of sheep.|The hair of sheep
What is leather made of?|Leather is made of the skin of animals.|Skin of animals
What is butter made of?|Butter is made of cream.|Cream
What is wine made of?|Wine is made of grapes.|Grapes
What is chocolate made of?|Chocolate is made of cocoa, sugar and milk.|Cocoa, sugar and milk
What is honey made of?|Honey is made of the nectar of flowers.|Nectar
What is a house made of?|A house can be made of wood, stone or bricks.|Wood, stone or bricks
What do we hear with?|We hear with our ears.|Our ears
What do we see with?|We see with our eyes.|Our eyes
What do we smell with?|We smell with the nose.|The nose
What do we think with?|We think with the brain.|The brain
What is faster, light or sound?|Light is faster than sound.|Light
Which is faster, a train or a bicycle?|A train is faster than a bicycle.|A train
Which is faster, a rabbit or a turtle?|A rabbit is faster than a turtle.|A rabbit
Which is heavier, a kilogram of feathers or a kilogram of iron?|Both are equally heavy.|Both are equal
What is softer, a stone or a pillow?|A pillow is softer than a stone.|A pillow
What is sweeter, honey or salt?|Honey is sweeter than salt.|Honey
Is the sea salty?|Yes, the water of the sea is salty.|Yes
Is the sun bigger than the Earth?|Yes, the sun is much bigger than the Earth.|Yes
Is the sky blue?|Yes, on a clear day the sky is blue.|Yes
Is snow cold?|Yes, snow is cold.|Yes
Is water wet?|Yes, water is wet.|Yes
Can pigs fly?|No, pigs cannot fly.|No
Can dogs fly?|No, dogs cannot fly.|No
Can birds fly?|Yes, most birds can fly.|Yes
Can a fish walk?|No, a fish cannot walk, but it can swim.|No
Can cats swim?|Yes, cats can swim, but most of them do not like water.|Yes
Can people live on the moon?|No, people cannot live on the moon without special suits and houses.|No
Do fish sleep?|Yes, fish rest, although they do not close their eyes.|Yes
Do bees sleep?|Yes, bees sleep at night in their hive.|Yes
Do plants need water?|Yes, plants need water to live.|Yes
Is it healthy to eat fruit?|Yes, fruit is healthy.|Yes
What do you need to make bread?|To make bread you need flour, water, salt and yeast.|Flour, water, salt and yeast
What do people wear in winter?|In winter people wear warm coats, hats and gloves.|Warm coats, hats and gloves
What do people do at school?|At school people read, write, count and learn.|They learn
When do leaves fall?|Leaves fall in autumn.|In autumn
When do flowers bloom?|Most flowers bloom in spring and summer.|In spring
When does the sun rise?|The sun rises in the morning.|In the morning
When do we see the stars?|We see the stars at night.|At night
Who lives in a castle?|Kings and queens live in a castle.|A king
Who lives in a hive?|Bees live in a hive.|Bees
Who works on a farm?|A farmer works on a farm.|A farmer
Is the Earth flat?|No, the Earth is round like a ball.|No
Is a whale a fish?|No, a whale is not a fish, it is a mammal that lives in the sea.|No
Is a spider an insect?|No, a spider is not an insect, because it has eight legs.|No
Is a tomato a fruit?|Yes, a tomato is a fruit, although people use it as a vegetable.|Yes
Can penguins fly?|No, penguins cannot fly, but they swim very well.|No
Can fish breathe under water?|Yes, fish breathe under water with their gills.|Yes
Is the sun a star?|Yes, the sun is a star.|Yes
Is the moon a planet?|No, the moon is not a planet, because it travels around the Earth.|No
Is fire hot or cold?|Fire is hot.|Hot
Is ice hot or cold?|Ice is cold.|Cold
Which is bigger, an elephant or a mouse?|An elephant is much bigger than a mouse.|An elephant
Which is bigger, the sun or the moon?|The sun is much bigger than the moon.|The sun
Which is faster, a car or a bicycle?|A car is faster than a bicycle.|A car
Which is heavier, a feather or a stone?|A stone is heavier than a feather.|A stone
Which is colder, summer or winter?|Winter is colder than summer.|Winter
""")

DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = "January February March April May June July August September October November December".split()
NUMBERS = ("zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
           "seventeen eighteen nineteen twenty").split()
LISTS = {
    "animals": [a[0] for a in ANIMALS], "fruits": "apples pears plums cherries grapes oranges lemons bananas peaches strawberries".split(),
    "vegetables": "carrots potatoes onions beans peas cabbages tomatoes cucumbers pumpkins spinach".split(),
    "colors": "red blue green yellow orange purple black white brown pink gray".split(),
    "flowers": "roses tulips daisies lilies violets sunflowers poppies orchids".split(),
    "trees": ["the oak", "the pine", "the birch", "the maple", "the willow", "the beech", "the palm", "the apple tree"],
    "planets": "Mercury Venus Earth Mars Jupiter Saturn Uranus Neptune".split(),
    "instruments": ["the piano", "the violin", "the guitar", "the drum", "the flute", "the trumpet", "the harp"],
    "sports": "football tennis swimming running cycling basketball skiing rowing".split(),
    "tools": ["a hammer", "a saw", "a shovel", "a wrench", "an axe", "a drill", "a ladder"],
    "jobs": [j[0] for j in JOBS], "seasons": ["spring", "summer", "autumn", "winter"],
    "birds": ["robins", "eagles", "owls", "swans", "crows", "penguins", "parrots", "ducks"],
    "insects": ["bees", "ants", "butterflies", "beetles", "flies", "crickets"],
    "drinks": ["water", "milk", "tea", "coffee", "juice", "lemonade"],
    "school subjects": ["reading", "writing", "mathematics", "history", "music", "art", "science"],
    "oceans": ["the Pacific Ocean", "the Atlantic Ocean", "the Indian Ocean", "the Arctic Ocean", "the Southern Ocean"],
}
WORDS = table("""
hello|bonjour|hola|hallo|ciao
thank you|merci|gracias|danke|grazie
goodbye|au revoir|adios|auf Wiedersehen|arrivederci
yes|oui|si|ja|si
no|non|no|nein|no
please|s'il vous plait|por favor|bitte|per favore
good morning|bonjour|buenos dias|guten Morgen|buongiorno
good night|bonne nuit|buenas noches|gute Nacht|buona notte
friend|ami|amigo|Freund|amico
water|eau|agua|Wasser|acqua
bread|pain|pan|Brot|pane
house|maison|casa|Haus|casa
dog|chien|perro|Hund|cane
cat|chat|gato|Katze|gatto
book|livre|libro|Buch|libro
sun|soleil|sol|Sonne|sole
moon|lune|luna|Mond|luna
love|amour|amor|Liebe|amore
one|un|uno|eins|uno
two|deux|dos|zwei|due
mother|mere|madre|Mutter|madre
father|pere|padre|Vater|padre
child|enfant|nino|Kind|bambino
man|homme|hombre|Mann|uomo
woman|femme|mujer|Frau|donna
day|jour|dia|Tag|giorno
night|nuit|noche|Nacht|notte
milk|lait|leche|Milch|latte
wine|vin|vino|Wein|vino
apple|pomme|manzana|Apfel|mela
tree|arbre|arbol|Baum|albero
flower|fleur|flor|Blume|fiore
bird|oiseau|pajaro|Vogel|uccello
fish|poisson|pez|Fisch|pesce
horse|cheval|caballo|Pferd|cavallo
red|rouge|rojo|rot|rosso
blue|bleu|azul|blau|blu
green|vert|verde|gruen|verde
white|blanc|blanco|weiss|bianco
black|noir|negro|schwarz|nero
school|ecole|escuela|Schule|scuola
heart|coeur|corazon|Herz|cuore
star|etoile|estrella|Stern|stella
sea|mer|mar|Meer|mare
city|ville|ciudad|Stadt|citta
world|monde|mundo|Welt|mondo
time|temps|tiempo|Zeit|tempo
four|quatre|cuatro|vier|quattro
five|cinq|cinco|fuenf|cinque
ten|dix|diez|zehn|dieci
three|trois|tres|drei|tre
""")
LANGUAGES = ["French", "Spanish", "German", "Italian"]


def cap(s):
    return s[:1].upper() + s[1:]


def article(name):
    return name if name.startswith(("the ", "a ", "an ")) else ("an " if name[0] in "aeioAEIO" else "a ") + name


def capital_sentence(r, c):
    return ex(r, "[The capital of {0} is {1}.|The capital of {0} is {1}.|The capital of {0} is {1}.|{1} is the capital of {0}.|"
              "The capital city of {0} is {1}.|{1} is the capital city of {0}.]".replace("{0}", "{c}").replace("{1}", "{k}"),
              c=c[0], k=c[1])


def country_more(r, c):
    out = [ex(r, "[{c} is a country in {k}.|{c} lies in {k}.|{c} is in {k}.|The country lies in {k}.]", c=c[0], k=c[2]),
           ex(r, "[People in {c} speak {l}.|The people there speak {l}.|Most people there speak {l}.]", c=c[0], l=c[3]),
           ex(r, "[{c} is known for {f}.|The country is known for {f}.|The country is famous for {f}.]", c=c[0], f=c[5]),
           tidy(c[4] + "."), tidy(c[6] + ".")]
    if c[2] == "Australia":
        out[0] = "Australia is both a country and a continent."
    return out


def country_doc(r):
    c = r.choice(COUNTRIES)
    more = country_more(r, c)
    r.shuffle(more)
    s = [capital_sentence(r, c)] + more[:r.randint(1, 5)]
    if r.random() < 0.25:
        r.shuffle(s)
    if r.random() < 0.3:
        s.append(ex(r, "[Many visitors come to {k} every year.|{k} is a busy and beautiful city.|It is a good place for a "
                    "journey.|Visitors like to walk through the streets of {k}.|There is much to see in {k}.]", k=c[1]))
    return " ".join(s)


def capital_list_doc(r):
    cs = r.sample(COUNTRIES, r.randint(3, 7))
    form = r.choice(["The capital of {c} is {k}.", "The capital of {c} is {k}.", "{k} is the capital of {c}."])
    head = r.choice(["Here are some capitals.", "Here is a list of capitals.", "These are some capitals of the world."])
    return " ".join([head] + [tidy(form.format(c=c[0], k=c[1])) for c in cs])


def animal_sentences(r, a):
    name, plural, baby, sound, home, food, legs, kind, fact, color = a
    legs_s = "{a} has no legs." if legs == "no" else "{a} has {l} legs."
    out = [ex(r, "[{a} lives {h}.|{p} live {h}.]", a=article(name), p=plural, h=home),
           ex(r, "[{a} eats {f}.|{p} eat {f}.]", a=article(name), p=plural, f=food),
           ex(r, "[A baby {n} is called {b}.|The young of {a} is called {b}.]", n=name, a=article(name), b=article(baby)),
           ex(r, legs_s, a=article(name), l=legs),
           tidy(fact + ".")]
    if sound != "makes no sound":
        out.append(tidy("%s %s." % (article(name), sound)))
    return out


def animal_doc(r):
    a = r.choice(ANIMALS)
    s = animal_sentences(r, a)
    r.shuffle(s)
    first = ex(r, "[{a} is a~ {k}.|{p} are animals that live {h}.|{a} is an animal that lives {h}.]",
               a=article(a[0]), k=a[7], p=a[1], h=a[4])
    return " ".join([first] + s[:r.randint(2, 5)])


def topic_doc(r):
    _, s = r.choice(TOPICS)
    if r.random() < 0.6:
        return " ".join(s)
    keep = [s[0]] + [x for x in s[1:] if r.random() < 0.7]
    return " ".join(keep)


def opposite_doc(r):
    out = []
    for a, b in r.sample(OPPOSITES, r.randint(3, 7)):
        out.append("The opposite of %s is %s." % (a, b))
    return " ".join(out)


def color_doc(r):
    return " ".join(tidy("%s is %s." % tuple(c)) for c in r.sample(COLORS, r.randint(3, 6)))


def job_sentence(r, j):
    return ex(r, "[A~ {n} {d}.|A~ {n} {d} and works {w}.|A~ {n} works {w} and uses {t}.|A~ {n} is a person who {d}.]",
              n=j[0], d=j[1], w=j[2], t=j[3])


def job_doc(r):
    if r.random() < 0.5:
        return " ".join(job_sentence(r, j) for j in r.sample(JOBS, r.randint(3, 5)))
    j = r.choice(JOBS)
    return ex(r, "A~ {n} is a person who {d}. A~ {n} works {w}. For this work a~ {n} uses {t}. [It is an important job.|Many "
              "children want to become a~ {n}.|The work is hard, but it brings joy.]", n=j[0], d=j[1], w=j[2], t=j[3])


def thing_sentence(r, t):
    if t[0].startswith("a pair"):
        return ex(r, "[We use {n} to {u}.|With {n} you can {u}.]", n=t[0], u=t[1])
    return ex(r, "[{n} is used to {u}.|We use {n} to {u}.|With {n} you can {u}.|{n} is made of {m} and is used to {u}.]",
              n=t[0], u=t[1], m=t[2])


def thing_doc(r):
    return " ".join(thing_sentence(r, t) for t in r.sample(THINGS, r.randint(3, 5)))


def sum_item(r):
    """(question with digits, answer number, sentence in words or digits)"""
    op = r.choice("++-*")
    if op == "+":
        a, b = r.randint(0, 10), r.randint(0, 10)
        return a, "+", "plus", b, a + b
    if op == "-":
        a = r.randint(1, 10)
        b = r.randint(0, a)
        return a, "-", "minus", b, a - b
    a, b = r.randint(1, 5), r.randint(1, 5)
    return a, "*", "times", b, a * b


def number_word(n):
    if n <= 20:
        return NUMBERS[n]
    tens = "zero ten twenty thirty forty fifty sixty seventy eighty ninety".split()
    if n == 100:
        return "one hundred"
    return tens[n // 10] + (" " + NUMBERS[n % 10] if n % 10 else "")


def sum_sentence(r):
    a, sign, word, b, c = sum_item(r)
    if r.random() < 0.5:
        return "%d %s %d = %d." % (a, sign, b, c) if r.random() < 0.4 else "%d %s %d is %d." % (a, word, b, c)
    return tidy("%s %s %s is %s." % (number_word(a), word, number_word(b), number_word(c)))


def number_doc(r):
    kind = r.random()
    if kind < 0.6:
        return " ".join(sum_sentence(r) for _ in range(r.randint(4, 8)))
    if kind < 0.8:
        a = r.randint(0, 8)
        return tidy(", ".join(NUMBERS[a:a + r.randint(5, 12)]) + ".")
    return " ".join("The number after %s is %s." % (NUMBERS[n], NUMBERS[n + 1]) for n in r.sample(range(20), 5))


def calendar_doc(r):
    kind = r.random()
    if kind < 0.3:
        return "The days of the week are " + listing(DAYS) + "."
    if kind < 0.5:
        return "The months of the year are " + listing(MONTHS) + "."
    names = r.choice([DAYS, MONTHS])
    out = []
    for i in r.sample(range(len(names)), 4):
        out.append("After %s comes %s." % (names[i], names[(i + 1) % len(names)]))
    return " ".join(out)


def trivia_doc(r):
    return " ".join(t[1] for t in r.sample([t for t in TRIVIA if t[1][:3] not in ("Yes", "No,")], r.randint(3, 6)))


def word_doc(r):
    out = []
    for w in r.sample(WORDS, r.randint(3, 5)):
        i = r.randrange(4)
        out.append('The %s word for "%s" is "%s".' % (LANGUAGES[i], w[0], w[1 + i]))
    return " ".join(out)


RHYMES = table("""
cat|hat
dog|frog
house|mouse
tree|bee
star|car
night|light
sun|fun
moon|spoon
day|play
rain|train
book|cook
king|ring
bear|pear
snow|crow
blue|shoe
red|bed
boat|goat
cake|lake
fox|box
hand|sand
""")

PAST = table("""
go|went
see|saw
eat|ate
run|ran
come|came
write|wrote
sing|sang
swim|swam
fly|flew
give|gave
take|took
make|made
say|said
tell|told
think|thought
buy|bought
bring|brought
find|found
know|knew
drink|drank
sleep|slept
speak|spoke
walk|walked
play|played
love|loved
help|helped
build|built
read|read
lose|lost
win|won
""")

PLURALS = [[a[0], a[1]] for a in ANIMALS] + table("""
child|children
man|men
woman|women
foot|feet
tooth|teeth
leaf|leaves
knife|knives
city|cities
story|stories
book|books
house|houses
box|boxes
tree|trees
apple|apples
potato|potatoes
""")

# what a thing is, for questions such as "Is a hammer an animal?"
KINDS = [(article(a[0]), "an animal") for a in ANIMALS] + [(w, k) for k, ws in (
    ("a fruit", "a banana|a lemon|a cherry|a pear|a plum|an apple|a grape"),
    ("a vegetable", "a carrot|an onion|a potato|a cabbage|a bean"),
    ("a tool", "a hammer|a saw|a shovel|a wrench|a drill"),
    ("a vehicle", "a car|a bus|a train|a bicycle|a truck"),
    ("an instrument", "a piano|a violin|a drum|a guitar|a flute"),
    ("a planet", "Mars|Venus|Jupiter|Saturn|Neptune|Mercury|Uranus|the Earth"),
    ("a color", "red|blue|green|yellow|purple|orange"),
    ("a country", "France|Japan|Egypt|Brazil|Canada|Kenya|Italy|China|Spain|Germany|Peru|Mexico|India|Norway"),
    ("a city", "Paris|Tokyo|Cairo|Rome|Madrid|Berlin|London|Lima|Vienna|Athens"),
    ("a season", "spring|summer|autumn|winter"), ("a flower", "a rose|a tulip|a daisy|a lily"),
    ("a tree", "an oak|a pine|a birch|a maple"), ("a metal", "gold|silver|iron|copper")) for w in ws.split("|")]


def grammar_doc(r):
    k = r.randrange(4)
    if k == 0:
        return " ".join(cap("%s rhymes with %s." % tuple(x)) for x in r.sample(RHYMES, r.randint(3, 6)))
    if k == 1:
        return " ".join('The past tense of "%s" is "%s".' % tuple(x) for x in r.sample(PAST, r.randint(3, 6)))
    if k == 2:
        return " ".join('The plural of "%s" is "%s".' % tuple(x) for x in r.sample(PLURALS, r.randint(3, 6)))
    return " ".join(cap("%s is %s." % x) for x in r.sample(KINDS, r.randint(3, 6)))


# word | definition: answers "What is ...?" and "What does ... mean?"
DEFINITIONS = table("""
a banana|a long yellow fruit that grows in warm countries
an orange|a round and juicy fruit with a thick skin
a lemon|a yellow fruit that tastes very sour
a grape|a small round fruit from which people make juice and wine
a cherry|a small red fruit with a hard stone inside
a strawberry|a sweet red berry that ripens in early summer
a potato|a vegetable that grows under the ground
a carrot|an orange root that people and rabbits like to eat
an onion|a round vegetable that can make you cry when you cut it
a tomato|a red and juicy fruit that is used as a vegetable
rice|a grain that feeds more than half of the people in the world
pasta|a food that is made of flour and water and cooked in hot water
pizza|a flat bread that is baked with tomatoes and cheese
cheese|a food that is made from milk
an egg|a round thing with a thin shell that is laid by a bird
sugar|a sweet white food that comes from cane or beets
salt|a white mineral that gives taste to food
coffee|a hot drink that is made from roasted beans
soup|a warm liquid food that is cooked from vegetables or meat
a cake|a sweet food that is baked for birthdays and holidays
a car|a vehicle with four wheels and an engine
a bus|a large vehicle that carries many people through a town
a truck|a big vehicle that carries heavy goods
a boat|a small vessel that floats on the water
a submarine|a ship that can travel under the water
a helicopter|an aircraft with turning blades that can rise straight up
a house|a building in which people live
a castle|a large old building with thick walls and towers
a bed|a piece of furniture on which people sleep
a chair|a piece of furniture for one person to sit on
a table|a piece of furniture with a flat top and legs
a door|a part of a wall that can be opened and closed
a window|an opening in a wall with glass that lets in the light
a garden|a piece of land where people grow flowers and vegetables
a park|a green place in a town where people walk and play
a market|a place where people buy and sell food and other goods
a bakery|a shop where bread and cakes are made
a museum|a building where people look at art and old things
a theater|a place where actors play on a stage
a hotel|a house with many rooms for travelers
a farm|a place where people grow crops and keep animals
a factory|a building where machines make goods
a street|a road in a town with houses on both sides
a city|a large place where many people live and work
a village|a small group of houses in the country
a country|a large area with its own people and government
a capital|the city where the government of a country works
a continent|one of the seven very large areas of land
an island|land with water on all sides
a valley|low land between hills or mountains
a lake|a large area of water with land around it
a beach|a strip of sand beside the sea
a cave|a large hole in a rock or a hill
a glacier|a huge river of ice that moves very slowly
a waterfall|a place where a river falls over a rock
an oasis|a green place with water in the desert
a jungle|a thick forest in a hot and rainy land
a swamp|land that is always soft and wet
a reef|a wall of coral or rock just below the sea
ice|frozen water
steam|water that has become a gas
fog|a cloud that touches the ground
dew|the small drops of water on the grass in the morning
a storm|very bad weather with strong wind and rain
thunder|the loud sound that follows lightning
a comet|a ball of ice and dust with a bright tail
a galaxy|a huge group of many billions of stars
the solar system|the sun together with the planets and moons that travel around it
a black hole|a place in space with such strong gravity that even light cannot leave it
a satellite|an object that travels around a planet
oxygen|a gas in the air that people and animals need to live
a metal|a hard and shiny material such as iron or gold
gold|a yellow metal that is rare and valuable
silver|a shiny gray metal that is used for coins and spoons
iron|a strong metal that is used for tools and bridges
glass|a hard and clear material that is made from sand
wood|the hard material of which trees are made
paper|a thin material for writing that is made from wood
plastic|a light material that is made from oil
a diamond|a very hard and clear stone
a cell|the smallest living part of a plant or an animal
DNA|the long molecule that carries the plan of a living thing
a virus|a tiny thing that can make people sick
a vaccine|a medicine that teaches the body to fight an illness
a muscle|a part of the body that can pull and make us move
blood|the red liquid that flows through the body
a lung|one of the two organs with which we breathe
the skin|the soft cover of the body
a tooth|one of the hard white things in the mouth that we use to bite
the eye|the organ with which we see
the ear|the organ with which we hear
a mammal|an animal that feeds its young with milk
a bird|an animal with feathers, wings and a beak
a fish|an animal that lives in water and breathes with gills
an insect|a small animal with six legs
a reptile|an animal with dry scales such as a snake or a lizard
an amphibian|an animal such as a frog that lives in water and on land
a nest|the home that a bird builds for its eggs
a feather|one of the light things that cover a bird
a leaf|the flat green part of a plant that catches the light
a root|the part of a plant that drinks water from the soil
grass|a low green plant that covers meadows and gardens
a mushroom|a soft living thing with a cap that grows in damp places
a cactus|a plant with sharp spines that grows in the desert
a word|a group of letters with a meaning
a sentence|a group of words that says something complete
a letter|a sign of the alphabet, or a message on paper
a poem|a short text with rhythm and often with rhymes
a story|a text that tells what happened to somebody
a dictionary|a book that explains words
a newspaper|a set of large pages with the news of the day
a question|a sentence that asks for an answer
a language|the words and rules that people use to talk to each other
history|the story of what happened in the past
science|the careful study of how the world works
mathematics|the study of numbers, shapes and patterns
a number|a sign or a word that says how many
a circle|a round shape with every point equally far from its center
a triangle|a shape with three sides
a square|a shape with four equal sides
geography|the study of countries, mountains and seas
biology|the study of living things
physics|the study of matter, energy and motion
chemistry|the study of what things are made of and how they change
democracy|a form of government in which the people vote
a law|a rule that everyone in a country must follow
a king|a man who rules a country
a queen|a woman who rules a country
a bank|a place that keeps and lends money
a holiday|a day on which people do not have to work
a birthday|the day of the year on which somebody was born
a family|a group of people such as parents and children
a friend|a person whom you like and trust
a neighbor|a person who lives next to you
love|a deep and warm feeling for somebody
courage|the strength to do something although you are afraid
patience|the skill of waiting without becoming angry
honesty|the habit of telling the truth
hope|the feeling that something good will happen
fear|the feeling that something bad may happen
joy|the feeling of great happiness
a smile|the look of a happy face
time|what we measure with clocks, in seconds, hours and years
a year|the time that the Earth needs to travel around the sun
a month|one of the twelve parts of a year
a week|a time of seven days
an hour|a time of sixty minutes
a minute|a time of sixty seconds
a phone|a small device with which people talk and send messages
a camera|a device that takes pictures
a television|a device that shows films and news
a radio|a device that plays music and voices from far away
a keyboard|a board with keys for writing on a computer
a screen|the bright part of a computer that shows words and pictures
memory|the ability to keep things in mind, or the part of a computer that keeps data
a file|a set of data with a name that is kept on a computer
data|facts that a computer can store
software|the programs that run on a computer
a website|a set of pages that you can read on the internet
a password|a secret word that protects your data
an algorithm|a list of steps that solves a problem
a bit|the smallest piece of information, either zero or one
a byte|a group of eight bits
a chip|a small piece of silicon with many tiny switches
a processor|the part of a computer that carries out the instructions
a weight|a number inside a neural network, or how heavy a thing is
a token|a small piece of text that a language model reads or writes
machine learning|a way to let a computer learn from examples
a game|something that people play for fun
a ball|a round toy that can be thrown, kicked or rolled
a doll|a toy that looks like a small person
a kite|a toy that flies in the wind on a long string
a piano|a large instrument with black and white keys
a violin|an instrument with four strings and a bow
a guitar|an instrument with six strings
a drum|a round instrument that you hit with sticks
a song|a piece of music with words
a dance|a set of steps that people make to music
a painting|a picture that is made with a brush and colors
a hero|a brave person who helps others
a dragon|a large animal in old stories that can fly and breathe fire
a unicorn|a white horse with one horn that lives only in stories
a ghost|a spirit that appears in stories at night
a pirate|a robber who sails on the sea
a knight|a soldier on a horse who lived long ago in a castle
a wizard|a man in stories who can do magic
magic|something in stories that cannot be explained
""")

COUNTABLE_SIZES = ("an ant|a bee|a mouse|a frog|a rabbit|a cat|a dog|a sheep|a pig|a bear|a horse|a car|an elephant|a bus|a house|a whale|"
                   "a castle|a mountain|the moon|the Earth|the sun").split("|")

# plain sentences that begin as a curious person may begin them; several ways to go on
STARTERS = """
The best way to learn is to [try, to make mistakes and to try again|practice a little every day|explain what you know to somebody else].
My name is [{n}|{n}|{n}], and I [live in a small house near the river|have a little dog that follows me everywhere|love to read stories about brave sailors|want to become {job} one day].
I like [{like2}|{like2}], because it makes me [happy|calm|feel alive]. My friends like it too.
The weather today is [sunny and warm, so we can go to the park|cold and gray, so we stay at home and drink tea|windy, and the leaves dance in the street].
In the morning I [wake up early, open the window and listen to the birds|eat bread with honey and drink a cup of tea|wash my face and get ready for school].
In the evening we [sit by the fire and tell stories|walk along the river and watch the sun go down|cook soup and eat together].
The cat [sat on the mat and looked out of the window|slept in the warm sun all afternoon|jumped on the table and drank the milk].
The dog [ran across the field and chased a red ball|barked at the moon and woke the whole street|wagged its tail because its friend came home].
The children [played in the garden until it was dark|built a house of snow|laughed and ran down to the lake].
The old man [sat on a bench and fed the birds|told us about his journeys across the sea|smiled and gave the boy an apple].
The old woman [knitted a warm scarf for her grandson|knew every plant in the forest|opened the door and invited us in].
The secret of happiness is [to be thankful for small things|a good friend and a warm meal|to give more than you take].
The most important thing in life is [to be kind|to have good friends|to stay curious].
If I had a million coins, I would [build a library in my village|buy a ship and sail around the world|give half of it to people who need it].
Yesterday I [went to the market and bought apples, bread and cheese|met an old friend and we talked for hours|found a small gray kitten under a bush].
Tomorrow we will [visit our grandmother in the country|climb the hill and eat our lunch at the top|plant a tree in the garden].
When I was a child, I [wanted to become {job}|lived in a house with a large garden|believed that the moon followed me].
A good teacher [listens, explains and never laughs at a question|makes hard things easy].
A good friend [tells you the truth and stays with you in bad times|shares your joy and your sorrow].
The sun rises in the [east, and a new day begins. The birds sing and the dew shines on the grass|east and sets in the west].
It was a dark and stormy night. [The wind howled around the house, and the rain beat against the windows. Suddenly somebody knocked at the door|The sea was wild, and the little ship rolled from side to side. But the captain was calm].
Dear {n}, [thank you for your letter. I was very happy to hear from you. The garden is full of flowers now, and I hope that you will visit us soon|I am writing to you from a small town by the sea. Every morning I swim, and in the evening I read|I have good news. Our cat has three kittens, and you may choose one of them]. With love, {m}.
To make [a good soup, cut carrots, onions and potatoes and cook them for half an hour|tea, pour boiling water over the leaves and wait three minutes|bread, mix flour, water, salt and yeast, and let the dough rise].
The world is [large and full of wonders|round, blue and beautiful|our home, and we should take care of it].
Computers are [machines that follow instructions very fast|useful tools, but people must tell them what to do].
Robots are [machines that can move and work by themselves|strong and patient, but they do not have feelings].
Small models are [fast, cheap and private|easy to run on any computer].
A language model [predicts the next word of a text|learns from many examples and writes word by word].
Water is [a clear liquid that all living things need|important for people, animals and plants].
Life is [like a river that is always moving|short, so let us be kind to each other].
Love is [patient and kind|the warmest of all feelings].
Music is [a language that everyone understands|the art of making pleasant sounds].
Science is [the careful study of how the world works|a way of asking questions and testing the answers].
Today is [a beautiful day|{day}, and the shops are full of people|the first day of the rest of the year].
There are [seven days in a week and twelve months in a year|many stars in the sky, more than anyone can count].
Every day [the baker gets up before the sun and bakes fresh bread|the farmer feeds the hens and milks the cows].
"Good morning," said {n}. "[How did you sleep|Are you hungry|Did you hear the storm last night]?" "[Very well, thank you|Not so well, but the sun is shining now]," said {m}.
"Where are you going?" asked {n}. "[To the market|To the lake|To the old mill]," said {m}. "[Do you want to come with me|Come with me, it is a lovely day]."
""".strip().split("\n")
LIKES2 = ["walking in the forest", "reading old books", "swimming in the lake", "cooking for my family", "painting the sea",
          "playing chess", "singing in the choir", "working in the garden", "riding my bicycle", "looking at the stars"]

PROVERBS = """Practice makes perfect.
Honesty is the best policy.
Better late than never.
Many hands make light work.
The early bird catches the worm.
Look before you leap.
Actions speak louder than words.
A friend in need is a friend indeed.
Every cloud has a silver lining.
Where there is a will, there is a way.
Slow and steady wins the race.
Do not count your chickens before they hatch.
A journey of a thousand miles begins with a single step.
You cannot judge a book by its cover.
Two heads are better than one.
Still waters run deep.
All that glitters is not gold.
When the cat is away, the mice will play.
An apple a day keeps the doctor away.
Make hay while the sun shines.""".split("\n")


def starter_doc(r):
    n, m = r.sample(GIRLS + BOYS, 2)
    out = []
    for line in r.sample(STARTERS, 1 if r.random() < 0.6 else 3):
        out.append(ex(r, line, n=n, m=m, like2=r.choice(LIKES2), day=r.choice(DAYS), job=article(r.choice(JOBS)[0])))
    return " ".join(out)


def definition_doc(r):
    return " ".join(tidy("%s is %s." % tuple(d)) for d in r.sample(DEFINITIONS, r.randint(3, 6)))


def compare(r):
    i, j = sorted(r.sample(range(len(COUNTABLE_SIZES)), 2))
    return COUNTABLE_SIZES[i], COUNTABLE_SIZES[j]


def compare_doc(r):
    out = []
    for _ in range(r.randint(3, 6)):
        a, b = compare(r)
        out.append(tidy("%s is [bigger|larger] than %s." % (b, a) if r.random() < 0.5 else "%s is smaller than %s." % (a, b)))
    return ex(r, " ".join(out))


def proverb_doc(r):
    return " ".join(r.sample(PROVERBS, r.randint(2, 4)))


# ---------------------------------------------------------------- essays

AI_OPEN = """The future of artificial intelligence is [bright, but it depends on the choices that people make today|not written yet, and people will decide what it looks like|small, fast and close to the people who use it|full of promise and full of questions|likely to change the way we learn, work and live|one of the great questions of our time|in the hands of the people who build it and use it|already taking shape in schools, hospitals and homes].
The future of artificial intelligence is [bright|exciting|open]. [It will help people in many parts of life.|In the coming years it will help us to learn, to heal and to discover.|It will do more with less energy than today.]
[Artificial intelligence is changing the world.|Artificial intelligence has come a long way in a short time.|People have dreamed of thinking machines for a long time.|Many people ask what artificial intelligence will bring.]"""
AI_BODY = """[Doctors may use it to find illnesses early and to choose the best treatment.|In medicine a machine can look at thousands of pictures and find small signs of illness.|Hospitals can use it to give each patient better care.]
[Teachers may use it to help every student at the right speed.|In schools artificial intelligence can explain a hard idea in many ways until the student understands.|Students can ask questions at any hour of the day.]
[Farmers can use it to save water and to grow more food.|On farms small machines can watch the soil and the weather and tell the farmer when to sow.]
[Scientists can use it to search for new materials and new medicines.|In science a machine can read more papers than any person and find hidden connections.]
[Artificial intelligence can help people who cannot see or hear well to take part in everyday life.|A patient voice can read a page aloud to a person who cannot see.]
[Some models will be very large, but many will be small enough to run on a simple device.|Small models will run on phones, in toys and in tools, without a connection to the internet.|A small model can run on an old computer and keep all words private.]
[Models with ternary weights need little memory and little energy.|When the weights of a model are only minus one, zero and one, the model becomes small and fast.|New ways of storing numbers let a model run without expensive chips.]
[Dull work can be left to machines, so that people have time for better things.|Machines can take over tasks that are boring or dangerous.]
[Artificial intelligence can translate between languages, so that more people understand each other.|People who speak different languages will be able to talk with ease.]
[Cars, trains and ships may become safer when machines help to steer them.|Cities can use it to save energy and to make traffic flow.]"""
AI_CARE = """[At the same time we must be careful.|But every tool can be used well or badly.|Still, there are risks that we must not forget.|There are also hard questions.]
[Machines can make mistakes, and people must be able to correct them.|A model can sound sure and still be wrong, so important answers must be checked.|A machine learns from examples, and if the examples are unfair, its answers will be unfair too.]
[Some jobs will change, and people will need time and help to learn new skills.|We should make sure that the benefits reach everyone and not only a few.|Private data must be protected.]"""
AI_END = """[In the end artificial intelligence is a tool, and its value depends on how we use it.|If we use artificial intelligence wisely, it can make life better for everyone.|The best future is one in which people and machines work together.|With care and good rules, artificial intelligence can become one of the most helpful inventions of all time.|What matters most is that people stay curious, kind and in control.]"""

ESSAYS = groups("""
computers
[The first computers filled whole rooms and could do less than a small watch today.|Long ago a computer was as large as a house.|Computers have changed a great deal in a short time.]
[Then the parts became smaller and smaller, and the machines became faster.|Year after year engineers made the parts smaller and cheaper.]
[Today almost everyone carries a computer in a pocket.|Now a tiny chip can do billions of steps in a second.]
[We use computers to write letters, to draw pictures and to talk with friends.|They help scientists to predict the weather and doctors to look inside the body.]
[A computer does exactly what its program says, so good programs are important.|Yet a computer only follows instructions, and people must think of the right ones.]
[The best computer is one that helps you and then gets out of the way.|Who knows what the next fifty years will bring?]

small software
[Good software is small, clear and honest about what it does.|A small program is easier to understand than a large one.|Many people believe that more features make a better program.]
[Every line of code has to be read, tested and repaired.|A line that does not exist can never break.]
[A library in a single file is easy to add to a project.|A program without dependencies can be built on almost any machine.]
[The language C is old, but it runs everywhere, from large servers to tiny chips.|Simple tools often live the longest.]
[Tests show that the program does what it promises.|A good test finds a mistake before the user does.]
[In the end, simple software respects the time of the people who use it.|It is hard work to make something simple, but it is worth it.]

renewable energy
[The world needs a lot of energy, and most of it once came from coal and oil.|Clean energy is one of the great tasks of our time.]
[The wind can turn large blades and make electricity.|Panels of silicon can turn sunlight into electricity.]
[Rivers have driven mills for centuries, and today they drive power plants.|Hot water from deep in the ground can heat whole towns.]
[The sun does not always shine and the wind does not always blow, so we need good batteries.|Batteries can store the energy for calm and cloudy days.]
[Saving energy is just as important as making it.|A lamp that is switched off needs no power at all.]
[With patience and good ideas, the air can become cleaner.|Every small step helps to protect the Earth.]

reading
[Reading is like a journey that you can make from your chair.|A person who reads can live many lives.|Few habits are as useful as reading.]
[A story takes you to distant lands and into other hearts.|In a book you can meet kings, sailors and talking animals.]
[Other books explain how things work, from clocks to clouds.|From books we learn what people before us have found out.]
[Reading every day makes it easier to think and to write.|Even ten minutes a day make a difference.]
[A quiet corner and a good lamp are all that you need.|The library has a book for every taste.]
[So open a book tonight and see where it takes you.|Those who love books are never lonely.]

the sea
[The sea is never still.|The sea covers most of the Earth, and yet we know little about it.|People have always loved and feared the sea.]
[On calm days it shines like glass, and in a storm its waves are as high as houses.|It rises and falls twice a day, because the moon pulls at the water.]
[Below the waves live whales, sharks, crabs and tiny glowing fish.|In warm water corals build reefs full of color.]
[Ships cross it with grain, cloth and machines.|Fishermen go out before the sun rises.]
[Plastic and oil harm the animals, so we must keep the water clean.|If we take too many fish, soon none will be left.]
[The sea gives us food, rain and dreams.|When you hear the waves, you feel both small and free.]

learning
[Learning is easier when you do a little every day.|Nobody is born wise.|Everyone can learn something new.]
[First try, then make a mistake, and then try again.|A mistake is not a failure, because it shows you the way.]
[It helps to explain a thing to another person in your own words.|Ask questions when you do not understand.]
[Sleep is important, because the brain sorts its memories at night.|Take short breaks and drink enough water.]
[Be patient with yourself, since good things need time.|Skill grows slowly, like a tree.]
[One day you will look back and be surprised how far you have come.|The joy of understanding is the best reward.]

space travel
[For thousands of years people looked at the stars and wondered.|The sky has always called to curious people.]
[Then they built rockets that were strong enough to leave the Earth.|A rocket must be very fast to escape the pull of the Earth.]
[People have walked on the moon and left their footprints in its dust.|Robots have landed on Mars and sent back pictures of red sand.]
[Life in space is not easy, because there is no air and everything floats.|Astronauts must take their air, their water and their food with them.]
[One day people may live in a small station on another planet.|Telescopes in space show us stars that are very far away.]
[Every journey teaches us something about our own home.|From far away the Earth looks like a small blue marble.]

cities and villages
[Some people love the city and others prefer the village.|Where is it better to live, in the city or in the village?]
[In the city there are shops, schools, theaters and many kinds of people.|A city is loud and full of lights, and there is always something to do.]
[In a village the nights are quiet and the neighbors know each other.|A village has fields, animals and fresh air.]
[City people travel by bus and train, and village people often walk.|In the city a doctor is near, and in the village the forest is near.]
[Both have their good sides.|Each place has its own music.]
[The best home is the place where your friends are.|What matters most is to be kind to your neighbors.]

the future of technology
[The future of technology is [smaller, cheaper and more friendly|not only about speed, but also about care|shaped by many small inventions].|New technology often begins as a strange idea.]
[Machines will use less energy and last longer.|Things that were once rare will become common.]
[Tools that repair themselves may one day build our roads and houses.|Clothes may measure our health, and windows may make electricity.]
[Learning will be possible anywhere, with a patient helper in every pocket.|People will talk to machines as easily as they talk to each other.]
[But technology alone cannot solve every problem.|We must decide which things should change and which should stay.]
[A good invention makes life simpler.|The most important part of the future is still the people in it.]
""")


def ai_essay(r):
    body = AI_BODY.split("\n")
    s = [ex(r, r.choice((AI_OPEN.split("\n")[0], AI_OPEN.split("\n")[0], *AI_OPEN.split("\n")[1:])))]
    s += [ex(r, b) for b in r.sample(body, r.randint(2, 4))]
    if r.random() < 0.7:
        care = AI_CARE.split("\n")
        s += [ex(r, care[0]), ex(r, care[1])] + ([ex(r, care[2])] if r.random() < 0.5 else [])
    s.append(ex(r, AI_END))
    return " ".join(s)


def essay_doc(r):
    if r.random() < 0.5:
        return ai_essay(r)
    _, s = r.choice(ESSAYS)
    return " ".join(ex(r, x) for x in s)


# ---------------------------------------------------------------- stories

GIRLS = ("Anna Mia Lily Rosa Clara Ella Nora Ida Maya Sara Tilda Wendy Hazel Ruby Olive Zoe Lena Ivy Greta Nina Pia "
         "Stella Flora Daisy").split()
BOYS = ("Tom Ben Leo Max Sam Finn Oscar Hugo Milo Otto Jack Theo Noah Emil Felix Henry Toby Simon Anton Victor Carl "
        "Jonas Luke Peter").split()
MORE_NAMES = ("Alice Bella Carla Dora Elena Fiona Gina Helen Irene Julia Karen Laura Maria Nadia Olga Paula Rita Sofia Tina Ursula Vera "
              "Yuki Amina Fatima Priya Mei Aisha Ingrid Emma Lucy Adam Boris Carlos David Erik Frank George Hans Ivan James John Kevin "
              "Louis Martin Nick Omar Paul Quentin Robert Stefan Thomas Umar Walter Yusuf Ahmed Raj Chen Kofi Diego Mario Mark "
              "Michael Daniel Alex Chris Sasha Robin Kim").split()
CHILDREN = [("girl", "f"), ("boy", "m")]
PEOPLE = [("princess", "f"), ("prince", "m"), ("king", "m"), ("queen", "f"), ("farmer", "m"), ("baker", "f"), ("sailor", "m"),
          ("knight", "m"), ("painter", "f"), ("fisherman", "m"), ("wizard", "m"), ("shepherd", "f"), ("gardener", "m"),
          ("clockmaker", "m"), ("pirate", "m"), ("astronaut", "f")]
BEASTS = ("dog cat fox rabbit bear mouse owl duck frog turtle squirrel elephant lion pig horse hedgehog penguin monkey "
          "wolf dragon robot bird fish bee snail kitten puppy goat dolphin unicorn").split()
HEROES = BEASTS * 3 + [k for k, _ in CHILDREN + PEOPLE] * 3 + [a[0] for a in ANIMALS] + [j[0] for j in JOBS] + (
    "witch fairy giant ghost snowman monster mermaid alien car train boat tree cloud star teapot banana apple pumpkin shoe clock "
    "lamp book computer spoon mountain flower leaf toy doll kite detective hunter student teacher grandmother grandfather "
    "dinosaur shark eagle tiger zebra child man woman thief soldier dancer singer merchant inventor").split()
TRAITS = ("kind brave curious clever shy cheerful gentle lazy proud quiet patient funny lonely hungry young merry "
          "careful stubborn").split()
PLACES = ["in a small village", "in a green valley", "in a house by the sea", "in a deep forest", "in a little town", "in an old castle",
          "on a farm on a hill", "in a cottage near the woods", "in a city by the river", "on a quiet island",
          "in a house at the edge of a lake", "near a tall mountain", "behind an old mill"]
LIKES = ["to sing", "to read old books", "to look at the stars", "to climb trees", "to collect shiny stones", "to paint",
         "to play by the river", "to tell jokes", "to bake", "to dance in the rain", "to watch the clouds", "to build things"]


def character(r, kind=None, name=None):
    if kind is None:
        x = r.random()
        kind = r.choice(["girl", "boy"]) if x < 0.4 else r.choice(PEOPLE)[0] if x < 0.6 else r.choice(BEASTS)
    sex = dict(CHILDREN + PEOPLE).get(kind) or r.choice("fm")
    if name:
        sex = "f" if name in GIRLS else "m"
    name = name or r.choice(GIRLS[:12] if sex == "f" else BOYS[:12])
    he, him, his = ("she", "her", "her") if sex == "f" else ("he", "him", "his")
    return dict(kind=kind, n=name, he=he, him=him, his=his)


# Each plot: the wish, the problem, the turn, the end. {n} the hero, {f} a friend (an animal of another kind, {fk}).
PLOTS = [p.split("\n") for p in """
One day {n} [lost|could not find] {his} {thing}. {he} looked under the bed, behind the door and in the garden, but it was not there.
{n} was very sad and began to cry.
Then {n} met {f} the {fk}. "[Why are you sad|What is wrong|Why do you cry], {n}?" asked {f}.
"I have lost my {thing}," said {n}. "[Do not worry|Do not be sad]," said {f}. "I will help you to look for it."
Together they [looked everywhere|searched all day]. At last they found the {thing} [under an old tree|beside the river|behind a large stone|in a bush].
{n} was so happy that {he} [danced|laughed|jumped for joy]. "Thank you, {f}!" said {n}. "You are a true friend."
From that day on, {n} took good care of the {thing}, and {n} and {f} were [best friends|good friends].

One [morning|day] {n} went for a walk in the forest. {he} followed a [butterfly|bright bird|small path] and did not look back.
Soon {n} did not know the way home. It became dark, and the trees looked [tall and strange|like giants].
{n} was afraid, but {he} [took a deep breath|did not run]. Then {he} saw a small light between the trees.
It was the house of {f}, an old {fk}. "[Come in|Please come in]," said {f}. "You look cold and tired."
{f} gave {n} [warm soup|hot tea and bread|a warm blanket and some milk] and listened to the whole story.
"I know this forest well," said {f}. "I will show you the way." [They walked|So they went] together [under the stars|with a little lamp] until {n} saw {his} own home.
"Thank you," said {n}. The next day {n} brought {f} a basket of [apples|cakes|berries]. And {n} never forgot the kind {fk}.

One year there was no rain. The [flowers|fields] were dry, and everyone was thirsty.
{n} wanted to help. "[There must be water somewhere|I will find water]," said {n}, and {he} packed a small bag.
{he} walked over [three hills|a high mountain|the dusty plain] for many hours.
On the way {n} met a {fk} named {f} who was too weak to walk. {n} gave {f} {his} last drop of water.
"You are kind," said {f}. "Now I will help you. Under that [gray rock|old oak] there is a spring."
{n} [pushed the stone away|began to dig], and clear, cold water came out of the ground.
{n} ran home and told everyone. Soon [the fields were green again|the gardens were full of flowers], and everyone thanked {n} and {f}.

{n} was afraid of the dark. Every night {he} [hid under the blanket|could not sleep] and listened to every sound.
One evening {he} heard a soft voice at the window. It was {f}, a little {fk}.
"[Why do you hide|What are you afraid of]?" asked {f}. "I am afraid of the dark," said {n}.
"Come outside with me," said {f}. "I will show you something." {n} was [very nervous|afraid], but {he} went.
Above them the sky was full of stars. [The moon shone on the grass like silver.|An owl called, and the wind sang softly.]
"It is beautiful!" said {n}. "You can only see it in the dark," said {f} with a smile.
After that night {n} was not afraid any more. {he} slept well and dreamed of [the stars|the silver moon].

{n} wanted to [swim across the lake|win the great race|climb the highest hill]. But {he} had tried many times and had always failed.
"You will never do it," said the others, and they laughed. {n} [felt small|was sad] and sat alone under a tree.
A {fk} named {f} came by. "[I know how you feel|I could not do it either]," said {f}. "But I practiced a little every day."
So {n} practiced every morning with {f}. At first it was [hard|very difficult], but each day it became a little easier.
At last the great day came. {n} took a deep breath and began. [{his} heart beat fast.|Everyone watched.]
{n} did not stop, even when {he} was tired. And then {he} did it! [The others cheered and clapped.|Even those who had laughed were cheering.]
"[You never gave up|You worked hard]," said {f}. {n} smiled. Now {he} knew that patience is stronger than doubt.

One winter the snow was so deep that the [birds|small animals] could not find any food.
{n} looked out of the window and saw {f}, a little {fk}, who was [shivering in the cold|thin and hungry].
{n} had only one piece of bread left. {he} thought for a moment, and then {he} opened the door.
"Come in and eat with me," said {n}. They shared the bread and sat by the fire.
{f} [told funny stories|sang an old song], and the long evening was warm and merry.
When spring came, {f} led {n} to a [secret garden|hidden meadow] full of [berries|sweet strawberries|apple trees]. "You shared with me," said {f}, "and now I share with you."
{n} learned that a kind heart is never poor.

{n} found a small seed on the road. "[What will it become|What kind of plant is this]?" {he} asked.
{he} planted it in the garden and gave it water every day. But nothing happened.
After a week {n} [was angry|wanted to give up]. "It is only a stone," {he} said.
"Wait," said {f}, the old {fk}. "Good things need time." So {n} waited and watered and sang to the little seed.
One morning there was a tiny green leaf. It grew and grew until it was [taller than the house|a strong young tree].
In summer it was covered with [golden flowers|sweet red apples], and {n} gave some to everyone.
"[You were right, {f}|Now I understand]," said {n}. "Good things need time."

One day {n} found an old map [in a chest|inside a book|under the floor]. A red cross was drawn on it.
"A treasure!" said {n}. {he} showed the map to {f} the {fk}, and they [left at once|went on a journey].
They crossed a [wild river|dark cave] and climbed a [steep hill|slippery rock]. When {n} was tired, {f} helped {him}, and when {f} was afraid, {n} held {f} tight.
At last they came to the place with the cross. They dug a deep hole and found a small box.
There was no gold in it, only a note. It said: "The real treasure is the friend who came with you."
{n} looked at {f}, and both began to laugh. [It was true.|They knew that it was true.]
They walked home together, and [they were the richest friends in the world|it was the best day of all].

{n} and {f} the {fk} wanted to bake a cake for [grandmother's birthday|the summer party].
{n} brought the flour, and {f} brought the eggs. But {n} did not [read the recipe|listen] and used salt instead of sugar.
They tasted the cake. "[Oh no|Oh dear]!" cried {n}. "It tastes terrible. It is my fault."
"[Everyone makes mistakes|That can happen]," said {f}. "Let us try again." So they started from the beginning.
This time {n} was careful. {he} tasted everything twice, and soon a sweet smell filled the [kitchen|house].
The cake was [round and golden|soft and sweet], and everyone wanted a second piece.
"What is your secret?" they asked. {n} laughed. "The secret is to try again," {he} said.

One night there was a great storm. The wind [broke the old bridge|blew down a big tree], and the rain did not stop.
{n} heard a cry for help. It was {f}, a young {fk}, who was [caught on the other side of the river|sitting on a small rock in the water].
{n} was afraid, but {he} did not [run away|wait]. "Hold on!" {he} called. "I am coming!"
{he} found a long rope, tied it to a tree and threw the other end to {f}.
{f} held the rope with all {fhis} strength, and {n} pulled and pulled. At last {f} was safe.
"You saved my life," said {f}. "[Anyone would have done it|I am glad that you are safe]," said {n}.
The next day everyone helped to [build a new bridge|clear the road], and they named it after {n}.

{n} broke [the blue vase|grandfather's clock|the big window] while {he} was playing. Nobody had seen it.
"I can say that it was the wind," thought {n}. But {he} felt [heavy inside|very bad], and {he} could not eat.
{f} the {fk} saw {his} sad face. "[What is wrong|What is the matter]?" asked {f}, and {n} told {fhim} everything.
"The truth is hard for one moment," said {f}, "but a lie is hard for a long time."
So {n} went home and told the truth. {his} mother was quiet for a moment, and then she smiled.
"Thank you for being honest," she said. "Let us [clean it up|repair it] together."
{n} felt as light as a feather, and {he} slept well that night.

A new family came to the place where {n} lived. They had a child who was a {fk}, and the name of the child was {f}.
Nobody wanted to play with {f}, because {f} [spoke with a strange accent|looked different].
{n} remembered how it feels to be alone. {he} went to {f} and said, "[Would you like to play with me|Do you want to be my friend]?"
{f} was surprised and very happy. {f} knew many [new games|songs from far away], and {fhe} showed them to {n}.
The others heard them laugh. One by one they came closer and asked, "May we play too?"
Soon everyone was playing together until [the sun went down|it was dark].
"Today I learned something," said {n}. "[A stranger is a friend you have not met yet|New friends bring new songs]."

{n} had a big dream. {he} wanted to fly [to the moon|over the mountains|above the clouds].
{he} built wings from [paper and glue|feathers and wood], but {he} fell into the [hay|pond]. Everyone laughed.
{f}, a clever {fk}, did not laugh. "[You need a better plan|Let us think together]," said {f}.
They drew plans, they measured and they made many mistakes. In the end they built a [large balloon|strange machine] from old sheets and a basket.
On a clear morning they lit a small fire, and the balloon rose slowly into the sky.
{n} saw the [rivers and fields|houses and roads] below, as small as toys. "We are flying!" {he} shouted.
When they came down, everyone cheered. And {n} was already dreaming of the next journey.

One night the moon did not rise. {n} looked up and saw only darkness.
"Where is the moon?" {he} asked. {f} the {fk} pointed to the [lake|well]. "It has fallen into the water!" said {f}.
They took a net and tried to catch the shining moon, but each time [it broke into a thousand pieces|only water was in the net].
They tried all night until they were tired and wet. Then {n} looked up and began to laugh.
The clouds had gone away, and the moon was in the sky, as round and bright as always.
"It was only a [mirror in the water|reflection]!" said {n}. "How silly we were," said {f}, and they both laughed.
They sat on the grass and looked at the moon until they fell asleep.

{n} had a shop where {he} repaired [old clocks|broken toys|torn coats]. But nobody came, because a [big new store|loud machine] had opened next door.
{n} sat at the window and counted {his} last coins. "[What shall I do|What will become of me]?" {he} sighed.
Then {f} the {fk} came in with a [broken music box|torn little bear]. "Nobody can mend it," said {f}. "It belonged to my grandmother."
{n} worked all night by the light of a candle. {he} cleaned every [wheel|seam] and was very patient.
In the morning it was as good as new. {f} had tears of joy. "[What do I owe you|How much does it cost]?" asked {f}. "Only a smile," said {n}.
{f} told everyone about the [wonderful|careful] work, and soon there was a long line in front of the shop.
{n} was never without work again. "Good work speaks for itself," {he} liked to say.

A [loud|strange] noise came from the [attic|cellar] every night. Everyone said that it was a ghost, and nobody dared to look.
But {n} wanted to know the truth. "I do not believe in ghosts," {he} said, although {his} knees were shaking.
{he} took a lantern and asked {f} the {fk} to come along. Step by step they went [up|down] the old stairs.
There it was again: knock, knock, knock! {n} opened the door very slowly.
And what did they see? A [tiny owl|small gray kitten] sat in a corner and could not get out. Its [wing|paw] was knocking against an empty box.
"You poor thing," said {n}. They carried it outside and gave it [water|milk] and a soft bed of hay.
From then on the nights were quiet, and {n} said, "Many fears are small when you bring a light."

There was a [rich|greedy] merchant in the land who wanted to buy the forest and cut down all the trees.
The birds were sad, the squirrels were sad, and {n} was sad too. "[We must do something|We cannot let this happen]," {he} said.
{n} asked {f}, a wise {fk}, for advice. "Do not shout at him," said {f}. "Show him what he cannot see."
So {n} invited the merchant for a walk. {he} showed him the [clear spring|tall oaks], the nests and the mushrooms, and they listened to the wind.
The merchant sat down in the shade and was silent for a long time. "I have never heard such peace," he said at last.
He did not cut down a single tree. Instead he [built a bench|planted a hundred new ones], and every Sunday he came to sit there.
{n} and {f} were glad. They had learned that a gentle word can be stronger than a loud one.

{n} wanted to give {his} mother a present, but {he} had no money at all.
{he} asked {f} the {fk}, "What can I give when my pockets are empty?" "[You have two hands and a good heart|You have more than you think]," said {f}.
So {n} went to the meadow and picked [daisies and poppies|wild roses and violets]. {f} helped {him} to tie them with a blade of grass.
Then {n} swept the floor, washed the dishes and wrote a small poem.
When {his} mother came home, the table was [shining|ready], and the flowers stood in a glass. She read the poem twice.
"This is the most beautiful present of my life," she said and hugged {n}.
{n} laughed with joy. The best presents cannot be bought.

It was the day of the great music contest. {n} wanted to play the [flute|violin|drum], but {he} was so nervous that {his} hands were cold.
"[What if I make a mistake|What if they laugh at me]?" {he} asked. {f} the {fk} said, "Play for one friend. Play only for me."
{n} stepped on the stage, looked at {f} and forgot the crowd. The first note was soft, and the second was brave.
In the middle {he} made a mistake, but {he} did not stop. {he} smiled and played on.
When the song was over, it was quiet for a moment. Then everyone began to clap and to cheer.
{n} did not win the first prize, but {he} was [proud|happy]. "You played with your heart," said {f}, "and I heard every note."

Every day {n} went past a small gray stone, and every day the stone seemed to look at {him}.
One [rainy|foggy] morning {he} stopped and heard a tiny voice. "Please turn me around," it said.
{n} turned it around. It was not a stone at all! It was a [turtle|tortoise] who had been lying on her back.
"Thank you," she said. "Hundreds of feet have walked past me. You are the first who stopped."
{f} the {fk} came by and brought fresh leaves, and the three of them had [breakfast|lunch] in the grass.
The old turtle told them stories of distant seas and sunken ships until the evening came.
After that {n} always looked twice at small gray things.

In the middle of the night {n} saw a light in the sky. A small round ship landed [behind the barn|in the pumpkin field].
The door opened, and out came {f}, a {fk} from a distant planet. "[Good evening|Excuse me]," said {f}. "I am lost. Which way is the Milky Way?"
{n} was surprised, but {he} was polite. "I am sorry, I do not know. But I have a telescope and a map of the stars."
They looked through the telescope together, and {n} found a little [green|blue] star. "That is my home!" cried {f}.
{f} gave {n} a shining pebble as a present. "If you hold it in the dark, it will sing," said {f}.
The ship rose without a sound and became a tiny spark. {n} waved for a long time.
And on quiet nights, if you listen well, you can still hear the pebble sing.
""".strip().split("\n\n")]
THINGS_LOST = ["red ball", "silver key", "little bell", "blue hat", "golden ring", "warm scarf", "favorite book", "wooden flute"]
STORY_END = ["The end.", "And they lived happily ever after.", "", "", "", "And that is the end of the story."]


# what a story may be asked to be about, and the plot (by number) that fits
SUBJECTS = table("""
a lost thing|0
a forest|1
a dark forest|1
the rain|2
a dry summer|2
the night|3
the stars|3
courage|3
a race|4
patience|4
winter|5
the snow|5
sharing|5
a seed|6
a garden|6
a treasure|7
an adventure|7
a journey|7
friendship|7
a cake|8
a birthday|8
a storm|9
a rescue|9
honesty|10
the truth|10
a new friend|11
a stranger|11
a dream|12
a balloon|12
flying|12
the moon|13
a shop|14
hard work|14
a ghost|15
a merchant|16
nature|16
a present|17
a mother|17
love|17
music|18
a concert|18
a stone|19
space|20
a visitor from space|20
the future|20
""")


def story(r, kind=None, name=None, friend=None, plot=None):
    """A tale in a few sentences: who and where, then a plot; every wish of the caller may be left open."""
    h = character(r, kind, name)
    friend = friend or r.choice([b for b in BEASTS if b != h["kind"]])
    fsex = r.choice("fm")
    fname = r.choice([n for n in (GIRLS[12:] if fsex == "f" else BOYS[12:]) if n != h["n"]])
    trait, place, like = r.choice(TRAITS), r.choice(PLACES), r.choice(LIKES)
    fields = dict(h, f=fname, fk=friend, thing=r.choice(THINGS_LOST), trait=trait, place=place, like=like,
                  fhe="she" if fsex == "f" else "he", fhim="her" if fsex == "f" else "him", fhis="her" if fsex == "f" else "his")
    opening = r.choice(["Once upon a time, there was"] * 3 + ["Once upon a time there was"] * 4
                       + ["Once upon a time there lived", "There was once", "Long ago there was", "Many years ago there lived"])
    size = "" if r.random() < 0.5 else "old " if h["kind"] in ("king", "queen", "farmer") else "little "
    intro = ex(r, "[{o} a~ {size}{kind} named {n} who lived {place}.|{o} a~ {trait} {size}{kind} named {n}. {he} lived "
               "{place}.|{o} a~ {trait} {kind} named {n}, and {he} lived {place}.]", o=opening, size=size, **fields)
    second = ex(r, "[{n} loved {like}.|{n} was {trait} and loved {like}.|{he} liked {like}.|Every day {n} liked {like}.]", **fields)
    s = [intro] + ([second] if r.random() < 0.8 else [])
    s += [ex(r, line, **fields) for line in (r.choice(PLOTS) if plot is None else PLOTS[plot])]
    s.append(r.choice(STORY_END))
    return " ".join(x for x in s if x)


def story_doc(r):
    return story(r)


# ---------------------------------------------------------------- chats

def q_capital(r, c=None):
    c = c or r.choice(COUNTRIES)
    q = ex(r, "[What is the capital of {c}?|What is the capital of {c}?|What is the capital of {c}?|What's the capital of {c}?|"
           "Which city is the capital of {c}?|Tell me the capital of {c}.|Do you know the capital of {c}?|Name the capital of "
           "{c}.|What is the capital city of {c}?|{c} capital?|capital of {c}|What is the name of the capital of {c}?|Can you tell me the capital of {c}?|"
           "Can you tell me what the capital of {c} is?|I want to know the capital of {c}.|Which city is {c}'s capital?|"
           "What is {c}'s capital?]", c=c[0])
    a = ex(r, "The capital of {c} is {k}.", c=c[0], k=c[1])
    if r.random() < 0.25:
        a += " " + r.choice(country_more(r, c))
    return q, a, c[1]


def q_capital_reverse(r):
    c = r.choice(COUNTRIES)
    q = ex(r, "[{k} is the capital of which country?|Which country has the capital {k}?|Where is {k}?|In which country is {k}?]",
           k=c[1])
    a = ex(r, "{k} is the capital of {c}.", k=c[1], c=c[0]) if "capital" in q else ex(r, "{k} is in {c}.", k=c[1], c=c[0])
    return q, a, cap(c[0])


def q_country(r):
    c = r.choice(COUNTRIES)
    kind = r.randrange(4)
    if kind == 0:
        return (ex(r, "[What language do people speak in {c}?|Which language is spoken in {c}?|What do they speak in {c}?]", c=c[0]),
                ex(r, "People in {c} speak {l}.", c=c[0], l=c[3]), c[3])
    if kind == 1:
        return (ex(r, "[Where is {c}?|On which continent is {c}?|Where does {c} lie?]", c=c[0]),
                country_more(r, c)[0] if c[2] == "Australia" else tidy("%s is in %s." % (c[0], c[2])), c[2])
    if kind == 2:
        return (ex(r, "[What is {c} known for?|What is {c} famous for?]", c=c[0]),
                tidy("%s is known for %s." % (c[0], c[5])), cap(c[5]))
    more = country_more(r, c)
    return (ex(r, "[Tell me about {c}.|What do you know about {c}?|Tell me something about {c}.|What can you tell me about {c}?]",
               c=c[0]),
            " ".join([more[0], tidy("The capital is %s." % c[1]), tidy("The country is known for %s." % c[5]), more[4]]), cap(c[5]))


def q_animal(r):
    a = r.choice(ANIMALS)
    name, plural, baby, sound, home, food, legs, kind, fact, color = a
    n = article(name)
    k = r.randrange(7)
    if k == 0 and sound != "makes no sound":
        return (ex(r, "[What sound does {n} make?|What does {n} say?|How does {n} sound?]", n=n), cap("%s %s." % (n, sound)),
                cap("it " + sound))
    if k == 1:
        return (ex(r, "[Where does {n} live?|Where do {p} live?]", n=n, p=plural), cap("%s live %s." % (plural, home)), cap(home))
    if k == 2:
        return (ex(r, "[What does {n} eat?|What do {p} eat?|What do {p} like to eat?]", n=n, p=plural),
                cap("%s eat %s." % (plural, food)), cap(food))
    if k == 3:
        return (ex(r, "[What is a baby {n} called?|What do you call a baby {n}?|What is a young {n} called?]", n=name),
                ex(r, "A baby {n} is called {b}.", n=name, b=article(baby)), cap(baby))
    if k == 4:
        return (ex(r, "[How many legs does {n} have?|How many legs do {p} have?]", n=n, p=plural),
                cap("%s has %s legs." % (n, legs)), cap(legs))
    if k == 5:
        return tidy("What kind of animal is %s?" % n), tidy("%s is a~ %s." % (n, kind)), cap(kind)
    s = animal_sentences(r, a)
    return (ex(r, "[Tell me about {p}.|Tell me something about {p}.|What do you know about {p}?|Tell me a fact about {p}.|What is "
               "{n}?]", n=n, p=plural), " ".join([tidy("%s is a~ %s." % (n, kind)), s[0], s[1], tidy(fact + ".")]), cap(kind))


def q_topic(r):
    names, s = r.choice(TOPICS)
    name = r.choice(names.split(", "))
    bare = re.sub(r"^(a|an|the) ", "", name)
    q = ex(r, "[What is {n}?|What is {n}?|What's {n}?|Tell me about {n}.|Tell me about {n}.|Can you explain {n}?|Explain {n}.|"
           "What do you know about {n}?|Tell me something about {n}.|what is {b}]", n=name, b=bare)
    if q.lower().startswith("what is") or q.startswith("What's"):
        a = s[0] + ("" if r.random() < 0.3 else " " + s[1])
    else:
        a = " ".join(s[:3] if r.random() < 0.6 else s)
    return q, a, s[0].rstrip(".")


def q_trivia(r):
    return tuple(r.choice(TRIVIA))


def q_opposite(r):
    a, b = r.choice(OPPOSITES)
    return (ex(r, "[What is the opposite of {a}?|What's the opposite of {a}?|Tell me the opposite of {a}.|opposite of {a}]", a=a),
            "The opposite of %s is %s." % (a, b), cap(b))


def q_color(r):
    t, c = r.choice(COLORS)
    return (ex(r, "[What color is {t}?|What colour is {t}?|What is the color of {t}?|Which color does {t} have?]", t=t),
            cap("%s is %s." % (t, c)), cap(c))


def q_job(r):
    j = r.choice(JOBS)
    k = r.randrange(3)
    if k == 0:
        return tidy("What does a~ %s do?" % j[0]), tidy("A~ %s %s." % (j[0], j[1])), cap(j[1])
    if k == 1:
        return tidy("Where does a~ %s work?" % j[0]), tidy("A~ %s works %s." % (j[0], j[2])), cap(j[2])
    return (ex(r, "[Who {d}?|What do you call a person who {d}?]", d=j[1]), tidy("A~ %s %s." % (j[0], j[1])), tidy("A~ " + j[0]))


def q_thing(r):
    t = r.choice([t for t in THINGS if not t[0].startswith("a pair")])
    k = r.randrange(3)
    if k == 0:
        return (ex(r, "[What is {n} used for?|What is {n} for?|What do you do with {n}?]", n=t[0]),
                ex(r, "{n} is used to {u}.", n=t[0], u=t[1]), cap("to " + t[1]))
    if k == 1:
        return ex(r, "What is {n} made of?", n=t[0]), tidy("%s is made of %s." % (t[0], t[2])), cap(t[2])
    return ex(r, "[What do I need to {u}?|How can I {u}?|What can I use to {u}?]", u=t[1]), ex(r, "To {u}, you can use {n}.", n=t[0], u=t[1]), cap(t[0])


def q_sum(r):
    a, sign, word, b, c = sum_item(r)
    if r.random() < 0.6:
        q = ex(r, "[What is {a} {s} {b}?|What's {a} {s} {b}?|{a} {s} {b}|{a}{s}{b}|{a} {s} {b} = ?|How much is {a} {s} {b}?|"
               "What is {a} {w} {b}?|What is {a} {w} {b}?|Calculate {a} {s} {b}.]", a=a, s=sign, b=b, w=word)
        return q, "%d %s %d is %d." % (a, word, b, c), str(c)
    q = ex(r, "[What is {a} {w} {b}?|How much is {a} {w} {b}?]", a=number_word(a), w=word, b=number_word(b))
    return q, tidy("%s %s %s is %s." % (number_word(a), word, number_word(b), number_word(c))), cap(number_word(c))


def q_calendar(r):
    names, what = r.choice([(DAYS, "day"), (MONTHS, "month")])
    i = r.randrange(len(names))
    a, b = names[i], names[(i + 1) % len(names)]
    k = r.randrange(4)
    if k == 0:
        return (ex(r, "[What {w} comes after {a}?|Which {w} is after {a}?|What comes after {a}?]", w=what, a=a),
                "After %s comes %s." % (a, b), b)
    if k == 1:
        return (ex(r, "[What {w} comes before {b}?|Which {w} is before {b}?|What comes before {b}?]", w=what, b=b),
                "Before %s comes %s." % (b, a), a)
    if what == "day":
        return (ex(r, "[What are the days of the week?|List the days of the week.|Name the days of the week.|Tell me the days "
                   "of the week.]"), "The days of the week are " + listing(DAYS) + ".", listing(DAYS))
    return (ex(r, "[What are the months of the year?|List the months of the year.|Name the months.]"),
            "The months of the year are " + listing(MONTHS) + ".", listing(MONTHS))


def q_list(r):
    what = r.choice(list(LISTS))
    items = LISTS[what]
    word, n = r.choice([("two", 2), ("three", 3), ("three", 3), ("three", 3), ("four", 4), ("five", 5), ("some", 4)])
    n = min(n, len(items))
    q = ex(r, "[Name {w} {x}.|Name {w} {x}.|List {w} {x}.|Give me {w} {x}.|Tell me {w} {x}.|Can you name {w} {x}?]", w=word, x=what)
    chosen = items[:]
    r.shuffle(chosen)
    chosen = chosen[:n]
    return q, cap(ex(r, "[{w} {x} are {l}.|Here are {w} {x}: {l}.]", w=word, x=what, l=listing(chosen))), cap(listing(chosen))


def q_count(r):
    n = r.choice([3, 5, 5, 10, 10, 10, 12, 15, 20])
    q = ex(r, "[Count to {n}.|Can you count to {n}?|Please count to {n}.|Count from 1 to {n}.|Count from one to {w}.|Count to {w}.]",
           n=n, w=NUMBERS[n])
    a = cap(", ".join(NUMBERS[1:n + 1])) + "."
    return q, a, a[:-1]


def q_word(r):
    w = r.choice(WORDS)
    i = r.randrange(4)
    q = ex(r, '[How do you say "{w}" in {l}?|How do you say {w} in {l}?|What is {w} in {l}?|What is the {l} word for {w}?|'
           'Translate {w} to {l}.|Say {w} in {l}.|Translate "{w}" into {l}.]', w=w[0], l=LANGUAGES[i])
    return q, 'In %s, "%s" is "%s".' % (LANGUAGES[i], w[0], w[1 + i]), cap(w[1 + i])


# fixed talk: questions separated by / and answers, one block each
TALK = groups("""
Hello!/Hello/Hi/Hi!/Hi there!/Hey/Hey!/Hello there!/Hey there/Greetings!/Howdy!/hello/hi/Hello, how can you help me?/yo
Hello! How can I help you today?
Hello! What would you like to talk about?
Hi! How can I help you?

Good morning!/Good morning/morning!/Good morning to you
Good morning! I hope you have a wonderful day. How can I help you?

Good evening!/Good evening/Good afternoon!
Good evening! How can I help you?

Good night!/Good night/I am going to bed./I'm going to sleep now.
Good night! Sleep well and have sweet dreams.

How are you?/How are you today?/How are you doing?/How do you feel?/How is it going?/What's up?/Hi, how are you?/Hello, how are you?/Hello! How are you?/are you ok?
I am doing well, thank you! How can I help you?
I am fine, thank you for asking. What can I do for you?

Who are you?/What are you?/Tell me about yourself./Who am I talking to?/Can you introduce yourself?/Introduce yourself./Who is this?/What kind of AI are you?/What model are you?/Which model are you?/Describe yourself.
I am a tiny language model with ternary weights. I run in a small C library.
I am a tiny ternary language model. My weights are only minus one, zero and one, and I run in a small C library.

What is your name?/What's your name?/Do you have a name?/What should I call you?/How do they call you?/your name?
I do not have a real name. I am a tiny ternary language model, and you can call me Tiny.

What can you do?/What can you do for me?/How can you help me?/What are you good at?/What are your skills?/Help/help me/What can I ask you?/What should I ask you?/What do you know?/What are you able to do?/Can you help me?/How does this work?
I can tell short stories, answer simple questions about countries, animals and nature, do small sums and chat a little. Try asking me for a story!
I can answer simple questions, tell you a story, name capitals and chat with you. I am very small, so I do not know everything.

How do you work?/How were you made?/How do you think?/How do you answer?/What is inside you?
I predict the next word again and again. My weights are only minus one, zero and one, so I need little memory and run fast in a small C library.

What is 1.58 bit?/What does 1.58 bits mean?/Why 1.58 bits?/What are ternary weights?/What does ternary mean?/What is a ternary weight?
A ternary weight can be minus one, zero or one. Three values carry about 1.58 bits of information, and that is where the number comes from.

How big are you?/How large are you?/What is your size?/How many parameters do you have?/Are you a large model?/Are you big?
I am very small. I have about three million parameters, and my file is smaller than a photo.

How old are you?/When were you born?/When is your birthday?/What is your age?
I am a computer program, so I do not have an age. I was trained a short time ago.

Where are you from?/Where do you live?/Where are you?/Where do you run?/Where do you come from?
I live inside a small file on your computer. A small C library brings me to life.

Who made you?/Who created you?/Who built you?/Who trained you?/Who is your creator?/Who wrote you?
I was trained with a small program that belongs to a C library. My training text was written by a generator of stories and facts.

Are you human?/Are you a human?/Are you a person?/Are you real?/Are you a real person?/Am I talking to a person?
No, I am not a human. I am a tiny language model, a program that writes text.

Are you a robot?/Are you a machine?/Are you an AI?/Are you a computer?/Are you artificial intelligence?/Are you a chatbot?
Yes, I am a program. I am a tiny language model that runs in a small C library.

Are you alive?/Do you have feelings?/Can you feel?/Do you have a heart?/Are you happy?/Can you feel pain?/Do you dream?/Do you sleep?
No, I am only a program, so I do not have feelings. But I like to be helpful.

Are you smart?/Are you clever?/Are you intelligent?/How smart are you?/Do you know everything?/Are you perfect?/Can you be wrong?/Do you make mistakes?/Can I trust you?
I am a very small model, so I know only a little and I can make mistakes. Please check important things yourself.

Do you have friends?/Do you have a family?/Do you have a brother?/Are you married?/Do you have children?
I am a program, so I do not have a family. But I am happy to talk with you.

Do you like music?/Do you like animals?/Do you like me?/Do you like dogs?/Do you like cats?/Do you like stories?/What do you like?/What is your hobby?/Do you have hobbies?
I am a program, so I do not really like things, but I enjoy telling stories and answering questions.

What is your favorite color?/What's your favorite color?/What is your favourite colour?/Which color do you like?
I cannot see colors, but I think that blue is a beautiful color, like the sky and the sea. What is yours?

What is your favorite animal?/Which animal do you like best?/What's your favorite animal?
I do not have a real favorite, but I like the owl, because it is quiet and wise. What is yours?

What is your favorite food?/What do you eat?/Are you hungry?/What's your favorite food?
I do not eat, because I am a program. A little electricity is enough for me.

Do you speak French?/Do you speak German?/Do you speak Spanish?/Which languages do you speak?/What languages do you know?/Can you speak another language?
I speak only English, but I know a few words of French, Spanish, German and Italian.

Can you write code?/Can you program?/Write a program for me./Write some code./Write a Python script./Can you code?/Write a C program.
I am sorry, but I am too small to write programs. I can tell you a story or answer a simple question.

Can you do math?/Can you calculate?/Are you good at math?/Do you know mathematics?/Can you add numbers?
I can do small sums such as two plus three. Large numbers are too hard for me.

Can you see me?/Can you hear me?/Do you see pictures?/Can you look at a photo?
No, I can only read and write text.

Do you remember me?/Do you know me?/Do you know my name?/Who am I?/What is my name?
I do not know your name, because you have not told me. I only remember what is written in this chat.

Thank you!/Thank you/Thanks!/Thanks/Thank you very much!/Thanks a lot/Many thanks./thx/Great, thank you!/That was helpful, thank you.
You are welcome! Is there anything else I can do for you?
You are welcome!

Goodbye!/Goodbye/Bye!/Bye/Bye bye/See you later!/See you soon/I have to go now./See you tomorrow!/ciao
Goodbye! It was nice to talk with you.
Goodbye! Have a wonderful day.

I am sad./I feel sad./I'm sad/I am unhappy./I had a bad day./I feel bad today./I am lonely./I feel lonely.
I am sorry to hear that. It may help to talk with a friend or to take a walk. Would you like to hear a story?

I am happy./I'm happy/I feel great!/I am so happy today!/I had a good day./Today was a great day!
That is wonderful! I am glad to hear it. What made you so happy?

I am tired./I'm tired/I am sleepy./I need a break.
Then you should rest a little. Drink some water, close your eyes and take a deep breath.

I am bored./I'm bored/This is boring./I have nothing to do./What should I do today?
You could read a book, take a walk or draw a picture. Or I can tell you a story!

I am hungry./I'm hungry/What should I eat?/What should I cook today?/What can I cook?/Give me an idea for dinner.
How about a warm soup with bread, or pasta with tomatoes? An apple is a good snack too.

I am angry./I'm angry/I am so mad.
I am sorry that you are angry. Take a deep breath and count to ten. It often helps to talk about it.

I am afraid./I'm scared/I feel nervous./I am worried./I am stressed.
Take a slow, deep breath. It often helps to talk with someone you trust. You are not alone.

I am sick./I do not feel well./I have a headache./I have a cold./My head hurts.
I am sorry to hear that. Rest, drink enough water, and if it does not get better, please see a doctor.

I love you./I love you!/I like you./You are nice./You are great!/You are funny./Good bot/You are smart./Good job!/Well done!/Nice!/Wow!/Cool!/Amazing!
Thank you! That is very kind of you.

You are stupid./You are dumb./You are wrong./That is wrong./That's not right./You are bad./I do not like you./Bad answer.
I am sorry. I am a very small model and I make mistakes. Shall we try again?

What is the meaning of life?/What is the purpose of life?/Why are we here?/What is the sense of life?
That is a big question for a small model. Many people say that it is to be kind, to learn and to love.

Does God exist?/Is there a God?/Which religion is best?/Who should I vote for?/Which party is best?
That is a question that every person must answer alone. I am only a small model.

What is love?/What is happiness?/How can I be happy?
Happiness often comes from small things: good friends, enough sleep, a walk in the sun and something useful to do.

What is the weather?/What is the weather like today?/How is the weather?/Will it rain tomorrow?/Is it raining?/Is it cold outside?
I cannot see the weather, because I have no connection to the world. Please look out of the window.

What time is it?/What's the time?/What day is it today?/What is the date today?/What year is it?/What is today's date?
I am sorry, but I have no clock, so I do not know. Please look at your computer or your watch.

What is in the news?/What happened today?/Who won the game?/Who won the game yesterday?/What is the latest news?/What is the price of gold?/How much does it cost?/Who is the president?/Who is the king?/Who is the richest person?/Who won the election?
I am sorry, but I do not know that. I am a small model and I have no news.

How can I learn better?/How do I learn faster?/How can I study well?/Give me a tip for learning./How do I prepare for a test?
Learn a little every day, explain it in your own words, take short breaks and sleep enough.

How can I sleep better?/I cannot sleep./How do I fall asleep?/Tips for better sleep/I can't sleep
Go to bed at the same time every day, keep your room dark and quiet, and put away your phone.

How do I make friends?/How can I find friends?/How do I find new friends?
Be kind, listen well and ask questions. Join a club or a sport, and give it time.

How can I stay healthy?/How do I stay healthy?/How can I get fit?/How do I live longer?/What is healthy?
Eat fruit and vegetables, drink water, move every day and sleep enough.

How can I save money?/How do I save money?/Give me advice about money.
Write down what you spend, buy only what you need and put a little money away every month.

How can I save energy?/How can I protect the environment?/How can I help nature?
Switch off lamps that you do not need, walk or ride a bicycle, and throw less away.

Give me some advice./Give me advice./Do you have any advice for me?/Give me a tip.
Be kind to others and to yourself. Take one small step each day.

Tell me something interesting./Tell me a fun fact./Tell me a fact./Tell me something./Teach me something./Surprise me./Fun fact/Tell me something I do not know.
An octopus has three hearts and eight arms.
Honey can be kept for many years.
A day on Venus is longer than its year.
Light from the sun needs about eight minutes to reach the Earth.
A bat finds its way in the dark by listening to echoes.

How do I make tea?/How do you make tea?/How can I make a cup of tea?
Boil some water, pour it over the tea leaves, wait three minutes and take the leaves out. Add milk or sugar if you like.

How do I bake bread?/How do you make bread?/How is bread made?/Give me a recipe for bread./How can I bake bread?
Mix flour, water, salt and yeast. Knead the dough, let it rise for an hour and bake it until it is brown.

How do I make pancakes?/Give me a recipe for pancakes./How do you make pancakes?/Give me a recipe./Do you know a recipe?
Mix flour, milk, eggs and a little salt. Pour some of it into a hot pan, turn it once and eat it with honey.

How do I boil an egg?/How long do I boil an egg?/How do you cook an egg?
Put the egg into boiling water. Wait five minutes for a soft egg and ten minutes for a hard one.

How do I plant a tree?/How do I grow a plant?/How can I grow flowers?/How do I grow tomatoes?
Dig a small hole, put in the seed or the young plant, cover it with soil and give it water and light.

How do I make soup?/How can I cook soup?/Give me a recipe for soup.
Cut carrots, onions and potatoes, cook them in water with salt for half an hour and add some herbs.

Sing a song./Sing me a song./Can you sing?/Can you dance?/Play some music.
I cannot sing, because I can only write text. But I can write a little poem for you.

Let's play a game./Can we play a game?/Do you want to play?/Play a game with me./I want to play
Gladly! Let us play with words. I say hot, and you say the opposite.

Can I ask you a question?/May I ask you something?/I have a question./I need help./Can you help me with something?/I want to ask you something.
Of course! What would you like to know?

Yes/Yes./Yes please/Sure/OK/Okay/ok/Yes!/of course
Good! What would you like to do next?

No/No./No thanks/no thank you/Nope/Never mind
All right. Just tell me when you need something.

What?/Why?/How?/Huh?/I do not understand./What do you mean?/I don't understand
I am sorry if I was not clear. Could you ask me again in other words?

Tell me a secret./Do you have a secret?/What is your secret?
My secret is that all my weights are only minus one, zero or one.

Will AI take over the world?/Is AI dangerous?/Are you dangerous?/Should I be afraid of AI?/Will robots rule the world?/Is artificial intelligence dangerous?
Artificial intelligence is a tool. It can be used well or badly, so people should build it with care. I am far too small to rule anything.

Will AI take my job?/Will machines replace people?/Will robots replace us?
Some jobs will change, but people will still be needed. Machines are best when they help people.

What is C?/What is the C language?/Why C?/What is a C library?/What is a header file?
C is a small and old programming language that runs almost everywhere. A library written in C can be used on nearly every machine.

What is the answer to everything?/What is the best number?/Tell me a number./Pick a number./Choose a number between one and ten.
I choose seven.

Flip a coin./Heads or tails?/Toss a coin./Roll a die./Roll a dice.
I cannot really flip a coin, but let us say heads.

testing/test/Test/this is a test/Are you there?/Is anyone there?/Do you hear me?/are you working?
Yes, I am here and I am working. How can I help you?

How is your day?/How was your day?/Did you have a good day?/How is your day going?/What are you doing?/What do you do all day?
My day is good, thank you! I am waiting for your questions. How is your day?

Nice to meet you./Nice to meet you!/Pleased to meet you./It is nice to talk with you./I am glad to meet you.
Nice to meet you too! What would you like to talk about?

Let's talk./Let us talk./Talk to me./Can we talk?/I want to talk./Chat with me./Say something./Tell me anything./Let's chat
Gladly! We could talk about animals, countries or the stars. Or shall I tell you a story?

What is better, cats or dogs?/Cats or dogs?/Do you prefer cats or dogs?/Which is better, a cat or a dog?/Are cats better than dogs?
Both are wonderful. Dogs are loyal and cats are independent. Which one do you prefer?

What is better, summer or winter?/Do you prefer summer or winter?/What is the best season?/Which season do you like?/What is your favorite season?
Every season has its beauty. I like the thought of spring, when everything begins to grow.

What is your favorite book?/Which book do you like?/Can you recommend a book?/What should I read?/What book should I read?
I have read only my training text, but I like stories with brave animals. Perhaps a book of fairy tales?

What is your favorite song?/What music do you like?/What is your favorite music?/Which music do you like?/What is your favorite movie?/Which film do you like?
I cannot hear or see, but I like the idea of music. What do you like to listen to?

What is your favorite number?/Which number do you like?/What's your favorite number?
I like the number three, because each of my weights has three possible values.

Where should I travel?/Where should I go on holiday?/Which country should I visit?/What is the most beautiful country?/What is the best country?/Where can I spend my holiday?
Every country has something beautiful. You could see the mountains of Switzerland, the beaches of Greece or the temples of Japan.

What should I do this weekend?/What can I do on Sunday?/Give me an idea for the weekend./Any ideas for the weekend?/What can I do with my friends?
You could walk in the forest, visit a museum, bake a cake or play a game with your friends.

What should I buy for my mother?/Give me an idea for a present./What is a good present?/What should I give my friend for his birthday?/What is a good gift?
A good book, a box of chocolate or a letter that you write yourself is always a nice present.

It is my birthday./It's my birthday!/Today is my birthday./Today is my birthday!/I have my birthday today
Happy birthday! I wish you a wonderful day and a great new year of life.

I am a student./I am a teacher./I am a programmer./I am a doctor./I work in an office./I am an engineer.
That sounds interesting! What do you like most about it?

I have a dog./I have a cat./I have a pet./My dog is brown./I have a little dog./My cat is black./I have two cats.
How nice! Animals are good friends. What is its name?

I am ten years old./I am a child./I'm eight years old./I am twelve years old./I am forty years old.
Nice to know! I can tell you a story or answer simple questions. What would you like?

I am from France./I am from Germany./I live in Japan./I come from Italy./I live in a small town./I live in a big city.
How nice! I would like to hear more about the place where you live.

I am learning English./I want to learn English./Can you help me with my English?/How can I learn English?/How can I learn a language?
That is a good plan! Read simple stories, learn a few words every day and talk as much as you can.

How can I learn to program?/How do I become a programmer?/I want to learn to code./How do I learn programming?/How can I learn C?
Begin with a small language and a small program. Read good code, write a little every day and do not fear mistakes.

How can I be more patient?/How do I become brave?/How can I be more confident?/How do I become better?/How can I improve?
Take small steps. Try one little thing each day, forgive yourself for mistakes and do not give up.

How do I write a good story?/How can I write a story?/How do I become a writer?/Help me write a story.
Choose a hero, give the hero a wish and a problem, let a friend help, and end with something that was learned.

How do I write a letter?/How do I start a letter?/Write a letter./Write a letter to my friend./Help me write a letter./Write an email.
Dear friend, thank you for your message. I am well and I hope that you are well too. I would be happy to see you soon. With best wishes.

How do I clean my room?/How do I keep my room clean?/How can I clean the kitchen?/My room is dirty.
Open the window, pick up one thing after another, wipe the dust away and sweep the floor.

How do I take care of a dog?/How do I take care of a cat?/How do I care for a pet?/What does a pet need?
Give it fresh water and good food, play with it every day, keep it clean and be gentle.

How do I make a cake?/How do I bake a cake?/How can I bake a cake?/Give me a recipe for a cake.
Mix butter, sugar and eggs, add flour and milk, and bake it in a hot oven for forty minutes.

How do I make coffee?/How can I make coffee?/How do you make coffee?
Grind the beans, pour hot water over them slowly and enjoy the coffee while it is warm.

How do I cook rice?/How do I cook pasta?/How do you cook pasta?/How long does pasta cook?/How do I cook noodles?
Bring salted water to a boil, put it in, let it cook for about ten minutes and pour the water away.

How do I make a salad?/Give me a recipe for a salad./How can I make a salad?/What goes into a salad?
Cut tomatoes, cucumbers and some green leaves, and mix them with oil, lemon juice and a little salt.

How do I get to the moon?/How can I fly to the moon?/How far is the moon?/Can I go to the moon?
You need a strong rocket and about three days. The moon is about 384 thousand kilometers away.

How far is the sun?/How hot is the sun?/How big is the sun?/How old is the sun?
The sun is about 150 million kilometers away, and it is so large that a million Earths could fit inside it.

How old is the Earth?/How big is the Earth?/When did the Earth begin?/How old is the world?
The Earth is about four and a half billion years old.

How many countries are there?/How many people are there in the world?/How many people live on Earth?/How many languages are there?
There are about two hundred countries, several thousand languages and about eight billion people on Earth.

Why do cats purr?/Why do dogs bark?/Why do dogs wag their tails?/Why do birds sing?
Animals use sounds and movements to show how they feel and to talk to each other.

Why is grass green?/Why are leaves green?/Why are plants green?/What makes plants green?
Plants are green because of a green color in their leaves that catches the light of the sun.

Why does it rain?/Where does rain come from?/How does rain form?/Why do clouds rain?
The sun warms the water of the sea, the vapor rises and forms clouds, and the drops fall as rain.

Why is the sun hot?/Why does the sun shine?/Why do stars shine?/How does the sun work?
The sun shines because tiny particles in its center join together and set free a great deal of energy.

Why do we dream?/Why do people dream?/What are dreams?/Why do I have bad dreams?
Nobody knows exactly. Perhaps the brain sorts the thoughts of the day while we sleep.

Why do we need to eat?/Why do we eat?/Why do people drink water?/Why do I need water?
Food gives the body energy, and water keeps every part of the body working.

Why do people laugh?/Why do we laugh?/Why do people cry?/Why do we cry?
People laugh when something is funny or when they are happy, and they cry when a feeling is very strong.

Why should I use you?/Why are you so small?/Why are small models good?/What is good about small models?/Why use a small model?/Why are you special?
I am small and fast. I run on your own computer without a graphics card, and your words stay private.

Are you better than other models?/Are you better than a large model?/Which model is the best?/Are you as good as a big model?
Large models know much more than I do. But I am small enough to run almost everywhere.

Do you need the internet?/Are you online?/Do you send my data?/Is this private?/Do you store my data?/Are my words safe?
I run on your own computer and need no connection. Your words stay with you.

Do you learn from me?/Can you learn?/Will you remember this?/Can you learn new things?/Do you have a memory?
I do not learn while we talk. I only remember what is written in this chat.

What were you trained on?/How were you trained?/What is your training data?/What data do you know?/How long did you learn?
I was trained on stories, simple facts and short chats that a small program wrote.

What is your purpose?/What is your goal?/Why do you exist?/What is your job?/What are you for?
I show that a useful little language model can run on a small machine, and I like to help.

What is the best joke?/What is funny?/Do you like jokes?/Do you have humor?
I like the one about the computer that went to the doctor because it had a virus.

What are you thinking about?/What do you think?/What is on your mind?/A penny for your thoughts
I am thinking about the next word, as always.

Can you keep a secret?/Can I tell you a secret?/I have a secret./I want to tell you something.
Of course. I forget everything when this chat ends. What would you like to tell me?

Help me with my homework./Do my homework./Can you do my homework?/I need help with my homework.
I can try! Ask me a simple question about numbers, animals, countries or nature.

Please be quiet./Stop./Stop it./Stop talking./Be quiet./Shut up
All right, I will be quiet. Just write when you need me.

I do not believe you./Are you sure?/Really?/Is that true?/Is that right?/Are you certain?
I think so, but I am a very small model. Please check it if it is important.

That is interesting./Interesting./Interesting!/I see./I understand./Good to know./Oh!/Aha/Nice to know.
I am glad that you find it interesting. Would you like to know more?

Tell me about love./Tell me about life./Tell me about happiness./What is a good life?
A good life has friends, work that makes sense, time to rest and small joys every day.

Can you swim?/Can you fly?/Can you run?/Can you walk?/Can you cook?/Can you drive a car?/Can you eat?
No, I am only a program. I can read and write text, and that is all.

Can you tell stories?/Can you write stories?/Do you know any stories?/Do you know a story?/Can you write a story?
Yes, I love to tell stories! Tell me who the story should be about, for example a dog or a princess.

Can you write a poem?/Can you write poems?/Do you write poems?
Yes, I can write a short poem, for example about the sea, the moon or a cat.

What animals do you know?/Which countries do you know?/What topics do you know?/What facts do you know?/Which topics can we talk about?
I know many countries and animals, the sun and the stars, the weather, the seasons, food, tools and jobs.
""")

JOKES = table("""
Why did the chicken cross the road?|To get to the other side.
Why did the computer go to the doctor?|Because it had a virus.
What do you call a bear with no teeth?|A gummy bear.
Why do birds fly south in winter?|Because it is too far to walk.
What has four wheels and flies?|A garbage truck.
Why was the math book sad?|Because it had too many problems.
What kind of tree fits in your hand?|A palm tree.
Why did the cookie go to the doctor?|Because it felt crumby.
What is brown and sticky?|A stick.
Why are fish so clever?|Because they live in schools.
How does the ocean say hello?|It waves.
What did one wall say to the other wall?|I will meet you at the corner.
Why do bees have sticky hair?|Because they use honeycombs.
What do you call cheese that is not yours?|Nacho cheese.
Why did the bicycle fall over?|Because it was two tired.
What do you get when you cross a snowman and a dog?|Frostbite.
Why can you never trust an atom?|Because it makes up everything.
What is a computer's favorite snack?|Microchips.
Why was the broom late?|Because it overslept.
""")
RIDDLES = table("""
What has hands but cannot clap?|a clock
What has a neck but no head?|a bottle
What gets wetter the more it dries?|a towel
What has keys but cannot open a door?|a piano
What has teeth but cannot bite?|a comb
What can you catch but not throw?|a cold
What goes up but never comes down?|your age
""")
POEMS = {
    "the sea": "The sea is wide, the sea is blue,\\nit sings a song for me and you.\\nThe waves come in, the waves go out,\\nthe happy gulls fly all about.",
    "the moon": "The moon is round, the moon is bright,\\nit is the lantern of the night.\\nIt shines on field and wood and stream,\\nand sends each child a silver dream.",
    "the sun": "The sun gets up, the night is done,\\nthe birds all sing to greet the sun.\\nIt warms the hill, it warms the tree,\\nit warms the world for you and me.",
    "a cat": "A little cat sits on the mat,\\nshe wears the evening like a hat.\\nShe dreams of fish, she dreams of cream,\\nand purrs away a happy dream.",
    "a dog": "My little dog runs to and fro,\\nthrough summer grass and winter snow.\\nHe wags his tail, he licks my hand,\\nthe truest friend in all the land.",
    "winter": "The snow comes down, the world is white,\\nthe stars are cold, the moon is bright.\\nInside the fire is warm and red,\\nand soon it will be time for bed.",
    "spring": "The snow is gone, the sky is clear,\\nthe little birds say spring is here.\\nThe flowers wake, the rivers run,\\nand all the fields drink in the sun.",
    "the rain": "The rain comes down on roof and street,\\nit taps the ground with tiny feet.\\nThe flowers drink, the rivers grow,\\nand then we see the bright rainbow.",
    "love": "A word, a smile, a gentle hand,\\na home in any distant land.\\nWhat shines in sun and stays in rain\\nis love that always comes again.",
    "a computer": "A small machine upon my desk\\ncan count the stars without a rest.\\nWith ones and zeros, on and on,\\nit works from dusk until the dawn.",
    "the stars": "The stars are small, the stars are far,\\nI make a wish on every star.\\nThey shine above the sleeping town\\nand send their quiet silver down.",
}
SYLLABLES = "bla zor ki mup fen dro li sta vo ru que nix ta gor pel shi wan do".split()
UNKNOWN = """[I am sorry, but I do not know that.|I am sorry, I do not know the answer.] [I am a very small model, and I know only simple things.|I am only a tiny model. You can ask me about countries, animals or nature.]"""
UNKNOWN_Q = """Who invented the {x}?
Explain {x} theory.
How does {x} work in detail?
Write an essay about the history of {x}.
What happened in the year {y}?
Who was the emperor of {x}?
What is the population of {c}?
Who is the president of {c}?
How far is it from {k} to {k2}?
What is the best restaurant in {k}?
Who wrote the book about {x}?
What is the square root of {y}?
What is {y} times {y2}?
Summarize the plot of {x}.
What is the phone number of {x}?
Translate this text into Latin.
Who discovered {x}?
Can you explain quantum physics?
What is quantum mechanics?
Explain the theory of relativity.
How do I repair my {x}?
Tell me about the history of {c}.
What is the chemical formula of {x}?
Who is {x}?
Do you know {x}?
What do you think about {x}?
What is {x}?
What is a {x}?
What is the capital of {x}?
Where is {x}?
What does {x} mean?
asdf
{x} {x2}
{x}"""


REAL_UNKNOWN = ("bitcoin inflation philosophy calculus plumbing opera baroque marketing taxes geometry genetics karate mortgage "
                "chemotherapy jazz surfing blockchain astrology ballet origami economics insurance archaeology hockey").split()


def fake_word(r):
    if r.random() < 0.3:
        return r.choice(REAL_UNKNOWN)
    return "".join(r.choice(SYLLABLES) for _ in range(r.randint(2, 3)))


def q_unknown(r):
    c, k, k2 = r.choice(COUNTRIES), r.choice(COUNTRIES), r.choice(COUNTRIES)
    x = fake_word(r)
    q = r.choice(UNKNOWN_Q.split("\n")).format(x=x if r.random() < 0.5 else cap(x), x2=fake_word(r), y=r.randint(110, 2030),
                                               y2=r.randint(110, 999), c=c[0], k=k[1], k2=k2[1])
    return q, ex(r, UNKNOWN), "I do not know"


def q_definition(r):
    w, d = r.choice(DEFINITIONS)
    bare = re.sub(r"^(a|an|the) ", "", w)
    q = ex(r, "[What is {w}?|What is {w}?|What's {w}?|What does the word {b} mean?|What does {b} mean?|Explain {w}.|Tell me what {w} "
           "is.|what is {b}|Tell me about {w}.|Do you know what {w} is?|Define {b}.]", w=w, b=bare)
    return q, tidy("%s is %s." % (w, d)), cap(d)


def q_compare(r):
    a, b = compare(r)
    x, y = r.sample([a, b], 2)
    if r.random() < 0.5:
        return (ex(r, "[Which is bigger, {x} or {y}?|What is larger, {x} or {y}?|What is bigger, {x} or {y}?|Is {b} bigger than {a}?]",
                   x=x, y=y, a=a, b=b), ex(r, "{b} is bigger than {a}.", a=a, b=b), cap(b))
    return (ex(r, "[Which is smaller, {x} or {y}?|What is smaller, {x} or {y}?]", x=x, y=y), ex(r, "{a} is smaller than {b}.", a=a, b=b),
            cap(a))


def q_grammar(r):
    k = r.randrange(3)
    if k == 0:
        a, b = r.choice(RHYMES)
        return (ex(r, "[What rhymes with {a}?|Find a rhyme for {a}.|Which word rhymes with {a}?|Give me a word that rhymes with {a}.]",
                   a=a), cap("%s rhymes with %s." % (b, a)), cap(b))
    if k == 1:
        a, b = r.choice(PAST)
        return (ex(r, "[What is the past tense of {a}?|What is the past of {a}?|Past tense of {a}?]", a=a),
                'The past tense of "%s" is "%s".' % (a, b), cap(b))
    a, b = r.choice(PLURALS)
    return (ex(r, "[What is the plural of {a}?|Plural of {a}?|What do you call more than one {a}?]", a=a),
            'The plural of "%s" is "%s".' % (a, b), cap(b))


def q_yes_no(r):
    """Is Paris the capital of Germany? Is a hammer an animal? Is snow green?"""
    k, true = r.randrange(3), r.random() < 0.5
    if k == 0:
        c, d = r.sample(COUNTRIES, 2)
        q = ex(r, "Is {k} the capital of {c}?", k=(c if true else d)[1], c=c[0])
        a = ("Yes, %s is the capital of %s." % (c[1], c[0]) if true else "No, the capital of %s is %s." % (c[0], c[1]))
    elif k == 1:
        w, kind = r.choice(KINDS)
        ask = kind if true else r.choice([x for _, x in KINDS[60:] if x != kind and not {x, kind} >= {"a flower", "a tree"}])
        if (w, ask) in KINDS:
            true = True
        q = "Is %s %s?" % (w, ask)
        a = "Yes, %s is %s." % (w, kind) if true else "No, %s is %s." % (w, kind)
    else:
        w, c = r.choice(COLORS)
        ask = c if true else r.choice([x for x in "red blue green yellow black white".split() if x not in c])
        q = "Is %s %s?" % (w, ask)
        a = "Yes, %s is %s." % (w, c) if true else "No, %s is %s." % (w, c)
    return q, a, "Yes" if true else "No"


def q_number(r):
    k = r.randrange(4)
    n = r.randint(1, 19)
    w = number_word
    if k == 0:
        return (ex(r, "[What number comes after {n}?|What comes after {n}?|Which number is after {n}?]", n=r.choice([str(n), w(n)])),
                "After %s comes %s." % (w(n), w(n + 1)), cap(w(n + 1)))
    if k == 1:
        return (ex(r, "[What number comes before {n}?|What comes before {n}?]", n=w(n)), "Before %s comes %s." % (w(n), w(n - 1)),
                cap(w(n - 1)))
    if k == 2:
        n = r.randint(1, 10)
        if r.random() < 0.5:
            return "What is half of %s?" % w(2 * n), "Half of %s is %s." % (w(2 * n), w(n)), cap(w(n))
        return "What is double %s?" % w(n), "Double %s is %s." % (w(n), w(2 * n)), cap(w(2 * n))
    m = r.choice([x for x in range(1, 21) if x != n])
    return (ex(r, "[Which is bigger, {a} or {b}?|Which number is larger, {a} or {b}?]", a=w(n), b=w(m)),
            cap("%s is bigger than %s." % (w(max(n, m)), w(min(n, m)))), cap(w(max(n, m))))


def q_repeat(r):
    w = re.sub(r"^(a|an|the) ", "", r.choice(DEFINITIONS)[0])
    if r.random() < 0.4:
        return ex(r, "[Say {w}.|Repeat the word {w}.|Say the word {w}.]", w=w), cap(w) + ".", None
    if r.random() < 0.5:
        d = r.choice(DEFINITIONS)
        w = re.sub(r"^(a|an|the) ", "", d[0])
        return (ex(r, "[Write a sentence with the word {w}.|Use the word {w} in a sentence.|Make a sentence with {w}.|Write a "
                   "sentence about {w}.]", w=w), tidy("%s is %s." % (d[0], d[1])), None)
    t = ex(r, "[The {a} is {c}.|I like the {a}.|The {a} and the {b} are friends.]", a=r.choice(BEASTS), b=r.choice(BEASTS),
           c=r.choice(LISTS["colors"]))
    return ex(r, "[Repeat after me: {t}|Say: {t}|Repeat: {t}]", t=t), t, None


def q_proverb(r):
    return (ex(r, "[Tell me a proverb.|Do you know a proverb?|Tell me a wise saying.|Give me a quote.|Tell me something wise.|Inspire "
               "me.|Motivate me.]"), r.choice(PROVERBS), None)


def q_talk(r):
    qs, answers = r.choice(TALK)
    return r.choice(qs.split("/")), r.choice(answers), None


def q_greeting(r):
    qs, answers = r.choice(TALK[:1] + TALK[4:8])
    return r.choice(qs.split("/")), r.choice(answers), None


def q_core(r):
    """What people type first: greetings, who are you, what can you do."""
    qs, answers = r.choice(TALK[:1] + TALK[4:11] + TALK[5:8] * 2)
    return r.choice(qs.split("/")), r.choice(answers), None


def q_joke(r):
    j = r.choice(JOKES)
    q = ex(r, "[Tell me a joke.|Tell me a joke|Tell me a joke!|Do you know a joke?|Make me laugh.|Say something funny.|Another joke, "
           "please.|Can you tell me a joke?|joke please]")
    return q, j[0] + " " + j[1], None


def q_riddle(r):
    j = r.choice(RIDDLES)
    q = ex(r, "[Tell me a riddle.|Do you know a riddle?|Give me a riddle.|Ask me a riddle.]")
    return q, j[0] + " It is " + j[1] + ".", None


def q_poem(r):
    t = r.choice(list(POEMS))
    q = ex(r, "[Write a poem about {t}.|Write me a poem about {t}.|Tell me a poem about {t}.|Can you write a poem about {t}?|A poem "
           "about {t}, please.|Write a short poem about {t}.]", t=t)
    if r.random() < 0.2:
        q = ex(r, "[Write a poem.|Write me a poem.|Tell me a poem.|Do you know a poem?|Can you write a poem?]")
        t = r.choice(["the sea", "the moon"])
    return q, POEMS[t], None


def q_story(r):
    x = r.random()
    verb = ex(r, "[Tell me a story|Tell me a story|Tell me a story|Tell me a short story|Write a story|Write a short story|Can you tell "
              "me a story|Tell a story|Please tell me a story|I want to hear a story|Tell me a tale|Make up a story]")
    mark = "?" if verb.startswith("Can") else "."
    if x < 0.3:
        if r.random() < 0.2:
            return ex(r, "[Once upon a time|A story, please.|story|Another story, please.|Tell me a bedtime story.|Tell me a fairy tale.|"
                      "Tell me a funny story.|Tell me an adventure.|Continue: Once upon a time|Tell me another story.|One more story!]"), story(r), None
        return verb + mark, story(r), None
    if x < 0.42:
        subject, plot = r.choice(SUBJECTS)
        return "%s about %s%s" % (verb, subject, mark), story(r, plot=int(plot)), None
    if x < 0.5:
        kind, friend = r.sample(BEASTS, 2)
        return "%s about %s and %s%s" % (verb, article(kind), article(friend), mark), story(r, kind, friend=friend), None
    if x < 0.6:
        sex = r.choice("fm")
        name = r.choice(GIRLS if sex == "f" else BOYS)
        kind = r.choice(["girl" if sex == "f" else "boy"] * 8 + BEASTS)
        return (ex(r, "{v} about [{k} named {n}|{k} called {n}|{k} named {n}|{n} the {b}]{m}", v=verb, k=article(kind), n=name, m=mark,
                   b=kind), story(r, kind, name), None)
    kind = r.choice(HEROES)
    if r.random() < 0.1:
        verb = ex(r, "[Tell me a funny story|Tell me a bedtime story|Tell me a long story|Tell me another story|Tell me a fairy tale|"
                  "Write a little story|I would like a story]")
    return "%s about %s%s" % (verb, article(kind), mark), story(r, kind), None


def q_ai(r):
    q = ex(r, "[What is the future of artificial intelligence?|What is the future of AI?|Tell me about the future of artificial "
           "intelligence.|What will AI bring?|What do you think about the future of AI?|Write a short essay about artificial "
           "intelligence.|How will AI change the world?]")
    s = [ex(r, AI_OPEN.split("\n")[0])] + [ex(r, b) for b in r.sample(AI_BODY.split("\n"), 2)] + [ex(r, AI_END)]
    return q, " ".join(s), None


def q_essay(r):
    name, s = r.choice(ESSAYS)
    q = ex(r, "[Write a short essay about {n}.|Write about {n}.|Write a short text about {n}.|Tell me your thoughts about {n}.]", n=name)
    return q, " ".join(ex(r, x) for x in s), None


QUESTIONS = [(q_capital, 20), (q_capital_reverse, 3), (q_country, 8), (q_animal, 12), (q_topic, 13), (q_trivia, 14), (q_opposite, 5),
             (q_color, 4), (q_job, 3), (q_thing, 4), (q_sum, 18), (q_calendar, 4), (q_list, 5), (q_count, 1), (q_word, 2),
             (q_talk, 34), (q_greeting, 6), (q_core, 26), (q_joke, 3), (q_riddle, 1), (q_poem, 3), (q_story, 22), (q_ai, 4),
             (q_essay, 2), (q_unknown, 6), (q_definition, 12), (q_compare, 3), (q_proverb, 1), (q_grammar, 2), (q_yes_no, 5),
             (q_number, 3), (q_repeat, 1)]
PICK = [f for f, w in QUESTIONS for _ in range(w)]


def roughen(r, q):
    """People do not always type carefully."""
    if r.random() < 0.06:
        q = ex(r, "[Please |Hi! |Hello! |Hey, |Can you answer this? |I have a question. |OK. ]") + " " + q
    if r.random() < 0.12:
        q = q.rstrip("?.!")
    if r.random() < 0.12:
        q = q.lower()
    if r.random() < 0.03:
        q += " " + ex(r, "[please|Thank you!|Thanks.]")
    return tidy(q) if q[:1].isupper() else q.strip()


SYSTEMS = """You are a helpful assistant.
You are a helpful assistant.
You are a helpful assistant.
You are a helpful, friendly assistant.
You are a tiny language model.
You are a friendly helper for children.
You are a kind and patient teacher.
Answer the questions of the user.
You are a helpful assistant. Answer politely and clearly.
You are an assistant that answers questions and tells stories.
Be helpful and honest.
You are a storyteller who loves short stories.
You are a careful assistant. If you do not know something, say so."""
BRIEF = """You are a helpful assistant. Answer in a few words.
Answer in one or two words.
Give very short answers.
Be brief.
You are a helpful assistant who gives very short answers."""
PIRATE = """You are a pirate.
You are a friendly pirate.
Talk like a pirate.
You are a helpful assistant who talks like a pirate."""
ROLE_NAMES = "Robo Pixel Luna Spark Pip Ada Bolt Coco Milo Nova".split()


def chat_capitals(r):
    """A question and its follow-ups: `And of Japan?`"""
    cs = r.sample(COUNTRIES, r.randint(2, 4))
    turns = list(q_capital(r, cs[0])[:2])
    for c in cs[1:]:
        turns += [ex(r, "[And of {c}?|And {c}?|What about {c}?|And what is the capital of {c}?|How about {c}?|and {c}]", c=c[0]),
                  ex(r, "The capital of {c} is {k}.", c=c[0], k=c[1])]
    return turns


def chat_name(r):
    """The user tells a name and asks for it later."""
    x = r.random()
    name = r.choice(GIRLS + BOYS) if x < 0.4 else r.choice(MORE_NAMES) if x < 0.7 else cap(fake_word(r))
    turns = [ex(r, "[My name is {n}.|I am {n}.|Hello, my name is {n}.|Hi, I'm {n}.|Hello! I am {n}.|I am called {n}.]", n=name),
             ex(r, "[Nice to meet you, {n}! How can I help you?|Hello, {n}! It is nice to meet you.]", n=name)]
    for _ in range(r.randint(0, 1)):
        turns += list(r.choice(PICK[:85])(r)[:2])
    turns += [ex(r, "[What is my name?|What's my name?|Do you know my name?|Who am I?|Do you remember my name?]"),
              ex(r, "Your name is {n}.", n=name)]
    return turns


def chat_more(r):
    """A topic, and `Tell me more.`"""
    names, s = r.choice(TOPICS)
    name = names.split(", ")[0]
    turns = ["What is %s?" % name, s[0], ex(r, "[Tell me more.|Tell me more|More, please.|Can you tell me more?|What else?|Go on.]"),
             " ".join(s[1:])]
    if r.random() < 0.3:
        turns += ["Thank you!", "You are welcome!"]
    return turns


def chat_animal(r):
    """Questions about one animal that later call it only `it`."""
    a = r.choice(ANIMALS)
    n = article(a[0])
    turns = [ex(r, "[What is {n}?|Tell me about {p}.|What kind of animal is {n}?|Do you know what {n} is?]", n=n, p=a[1]),
             tidy("%s is a~ %s." % (n, a[7]))]
    more = [("What does it eat?", "It eats %s." % a[5]), ("Where does it live?", "It lives %s." % a[4]),
            ("How many legs does it have?", "It has %s legs." % a[6]),
            (ex(r, "[What is its baby called?|What do you call its baby?]"), ex(r, "Its baby is called {b}.", b=article(a[2])))]
    if a[3] != "makes no sound":
        more.append(("What sound does it make?", "It %s." % a[3]))
    for q, ans in r.sample(more, r.randint(1, 3)):
        turns += [q, ans]
    return turns


def chat_country(r):
    """Questions about one country that later do not name it."""
    c = r.choice(COUNTRIES)
    turns = list(q_capital(r, c)[:2]) if r.random() < 0.5 else list((ex(r, "Where is {c}?", c=c[0]), country_more(r, c)[0]))
    more = [(ex(r, "[What language do they speak there?|Which language do people speak there?|What is the language?]"),
             "People there speak %s." % c[3]),
            (ex(r, "[What is it known for?|What is it famous for?|What is special there?]"), "It is known for %s." % c[5]),
            (ex(r, "[What is its capital?|And the capital?|What is the capital?|What is the capital city?]"),
             "The capital of %s is %s." % (c[0], c[1])),
            (ex(r, "[Tell me more.|Tell me something about it.|What else do you know?]"), tidy(c[6] + "."))]
    for q, ans in r.sample(more, r.randint(1, 3)):
        turns += [q, ans]
    return turns


def chat_story_more(r):
    turns = list(q_story(r)[:2])
    turns += [ex(r, "[I like it!|That was nice.|What a nice story!|I liked that story.|Great story!|Thank you for the story.]"),
              ex(r, "[Thank you! I am glad that you liked it.|I am glad that you liked the story. Would you like to hear another one?]")]
    return turns


def chat_doc(r):
    x = r.random()
    system, style = None, None
    if x < 0.35:
        system = r.choice(SYSTEMS.split("\n"))
    elif x < 0.40:
        system, style = r.choice(BRIEF.split("\n")), "brief"
    elif x < 0.43:
        system, style = r.choice(PIRATE.split("\n")), "pirate"
    elif x < 0.436:
        style = r.choice(ROLE_NAMES)
        system = ex(r, "[You are {n}, a helpful assistant.|Your name is {n}.|You are {n}.|You are a helpful robot named {n}.]", n=style)
    y = r.random()
    if style is None and y < 0.05:
        turns = chat_capitals(r)
    elif style is None and y < 0.10:
        turns = chat_name(r)
    elif style is None and y < 0.13:
        turns = chat_more(r)
    elif style is None and y < 0.15:
        turns = chat_story_more(r)
    elif style is None and y < 0.18:
        turns = chat_animal(r)
    elif style is None and y < 0.21:
        turns = chat_country(r)
    else:
        turns = []
        n = r.choice([1, 1, 1, 1, 2, 2, 3, 4]) if r.random() < 0.94 else r.randint(5, 9)
        while len(turns) < 2 * n:
            q, a, short = r.choice(PICK)(r)
            if style == "brief":
                if short is None:
                    continue
                a = short + "."
            if style == "pirate":
                if len(a) > 300:
                    continue
                a = ex(r, "[Arr, matey!|Ahoy!|Arr!]") + " " + a
            if len(style or "") > 2 and style not in ("brief", "pirate") and (not turns or r.random() < 0.3):
                q = ex(r, "[What is your name?|Who are you?|What's your name?|Hello! Who are you?|Tell me your name.]")
                a = ex(r, "[My name is {n}. How can I help you?|I am {n}, and I am happy to help you.]", n=style)
            turns += [roughen(r, q), a]
            if len(a) > 500 and (n < 5 or len(turns) > 8):
                break
    out = ["#chat"] + (["System: " + system] if system else [])
    for i, t in enumerate(turns):
        out.append(("User: ", "Assistant: ")[i % 2] + t)
    return "\n".join(out)


# ---------------------------------------------------------------- output

PLAIN = [(country_doc, 20), (capital_list_doc, 1), (animal_doc, 6), (topic_doc, 8), (opposite_doc, 2), (color_doc, 1), (job_doc, 2),
         (thing_doc, 2), (number_doc, 8), (calendar_doc, 1), (trivia_doc, 4), (word_doc, 1), (ai_essay, 10), (essay_doc, 5),
         (story_doc, 34), (starter_doc, 6), (definition_doc, 4), (compare_doc, 1), (proverb_doc, 1), (grammar_doc, 1)]
PLAIN_PICK = [f for f, w in PLAIN for _ in range(w)]


def document(r):
    return chat_doc(r) if r.random() < 0.58 else r.choice(PLAIN_PICK)(r)


def heldout(size, known):
    """Plain documents in the mixture of training, from other seeds; none that occurs in the training text as a whole."""
    out, total, i = [], 0, 0
    while total < size:
        r = random.Random(900000 + i)
        text = r.choice(PLAIN_PICK)(r)
        if text not in known:
            known.add(text)
            out.append(text)
            total += len(text)
        i += 1
    return out


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--out")
    ap.add_argument("--docs", type=int, default=60000)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--heldout")
    ap.add_argument("--heldout-size", type=int, default=30000)
    ap.add_argument("--without", nargs="*", default=[], help="corpora whose documents the held-out text must not repeat")
    a = ap.parse_args()
    if a.out:
        r = random.Random(a.seed)
        with open(a.out, "w", encoding="ascii") as f:
            f.write("\n%\n".join(document(r) for _ in range(a.docs)) + "\n")
    if a.heldout:
        known = set()
        for path in a.without:
            with open(path, encoding="ascii") as f:
                known.update(f.read()[:-1].split("\n%\n"))
        with open(a.heldout, "w", encoding="ascii") as f:
            f.write("\n%\n".join(heldout(a.heldout_size, known)) + "\n")


if __name__ == "__main__":
    main()
